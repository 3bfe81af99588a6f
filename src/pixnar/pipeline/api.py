"""`pixnar.fit`: from whatever holds the documents to an open index, in one call."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from pixnar.base.errors import PixnarError
from pixnar.base.progress import show_progress
from pixnar.corpus import Corpus, open_corpus
from pixnar.corpus.tabular import convert_table, is_table
from pixnar.index import Index
from pixnar.pipeline.run import fit as run
from pixnar.recipe import Recipe, find, override


def fit(
    documents: Any,
    output: str | os.PathLike[str],
    *,
    id: str | None = None,
    title: str | None = None,
    text: str | None = None,
    names: str | Sequence[str] | None = None,
    recipe: Recipe | str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    minutes: float | None = None,
    hold_out: bool = True,
    cache: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    threads: int = 0,
    quiet: bool = False,
) -> Index:
    """Build an index of documents and open it. An interrupted call resumes when it is repeated.

    ``index = pixnar.fit([{"id": "Q78.0", "names": ["brittle bones", "osteogenesis imperfecta"]}, …], "index/")``

    `documents` is a list of dictionaries, a pandas or polars DataFrame, a .csv, .tsv, .jsonl or .parquet file, a
    mapping from id to names, a corpus folder, or `irds:ID`. Columns are guessed by their names unless `id`, `title`,
    `text` and `names` say which they are; the others become metadata, for filters. Tables are kept as a corpus folder
    beside the index, `OUTPUT.corpus`. `settings` changes settings of the recipe: ``{"train.steps": 600}``. Where there
    is no dev split, some names are held out to select settings and added at the end, unless `hold_out` is false.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise PixnarError("pixnar.fit runs in one process: for several, torchrun … -m pixnar fit on the command line")
    chosen = recipe if isinstance(recipe, Recipe) else find(os.fspath(recipe)) if recipe is not None else Recipe()
    changes = dict(settings or {})
    if minutes is not None:
        changes["train.minutes"] = minutes
    if not hold_out:
        changes["fuse.hold_out"] = 0
    chosen = override(chosen, [f"{name}={_toml(value)}" for name, value in changes.items()])
    say = (lambda _: None) if quiet else print
    columns: dict[str, Any] = {"id": id, "title": title, "text": text, "names": names}
    corpus = corpus_of(documents, output, **columns, say=say, overwrite=overwrite)
    with nullcontext() if quiet else show_progress() as progress:
        run(corpus, output, chosen, cache=cache, overwrite=overwrite, threads=threads, progress=progress, say=say)
    return Index.load(output)


def corpus_of(
    documents: Any,
    output: str | os.PathLike[str],
    *,
    id: str | None = None,
    title: str | None = None,
    text: str | None = None,
    names: str | Sequence[str] | None = None,
    say: Any = print,
    skip_bad_rows: bool = False,
    overwrite: bool = False,
) -> Corpus:
    """The corpus that documents are, or that their table becomes, beside the index."""
    if isinstance(documents, Corpus):
        return documents
    if isinstance(documents, str | os.PathLike) and not is_table(documents):
        return open_corpus(documents, skip_bad_rows=skip_bad_rows)
    target = Path(os.path.abspath(output))
    folder = target.with_name(f"{target.name}.corpus")
    keep = "" if overwrite or not target.exists() else "use the same table, another output, or overwrite"
    corpus, columns = convert_table(documents, folder, id=id, title=title, text=text, names=names, keep=keep)
    say(f"{folder}: corpus written; {columns}")
    return corpus


def _toml(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool | str | list) else str(value)
