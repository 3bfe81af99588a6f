"""Check and convert: read a whole corpus, or copy it into our layout."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from pixnar.base.errors import MissingPartError
from pixnar.base.progress import Progress
from pixnar.corpus.errors import Skipped
from pixnar.corpus.reader import Corpus
from pixnar.corpus.records import Row
from pixnar.corpus.write import write_corpus


def check_corpus(corpus: Corpus, progress: Progress | None = None) -> tuple[dict[str, int], Skipped]:
    """Read every row of every part; give the number of rows of each, and the bad rows that were skipped.

    Parts that a corpus may lack (docids, queries) count as zero when they are missing.

    ``counts, skipped = check_corpus(open_corpus("folder", skip_bad_rows=True))``
    """
    counts = {"documents": _count(corpus.documents(progress=progress))}
    counts["docids"] = _count(_if_there(corpus.docids, progress))
    counts["queries"] = _count(_if_there(corpus.queries, progress))
    for split in corpus.splits():
        counts[f"qrels {split}"] = _count(corpus.qrels(split, progress=progress))
    return counts, corpus.skipped


def copy_corpus(
    corpus: Corpus,
    folder: str | os.PathLike[str],
    *,
    gzip: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> None:
    """Write a corpus of any format as a corpus folder; docids and queries that it lacks stay empty.

    ``copy_corpus(open_corpus("irds:beir/scifact/test", docids="docids.jsonl"), "scifact")``
    """
    write_corpus(
        folder,
        corpus.documents(progress=progress),
        _if_there(corpus.docids, progress),
        _if_there(corpus.queries, progress),
        {split: corpus.qrels(split, progress=progress) for split in corpus.splits()},
        gzip=gzip,
        overwrite=overwrite,
    )


def _if_there(read: Callable[[Progress | None], Iterable[Row]], progress: Progress | None) -> Iterable[Row]:
    try:
        return read(progress)
    except MissingPartError:
        return ()


def _count(rows: Iterable[object]) -> int:
    return sum(1 for _ in rows)
