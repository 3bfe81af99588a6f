"""Docid texts from plain files, for building a vocabulary where there is no corpus folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from pixnar.base.errors import CorpusError
from pixnar.base.progress import Progress
from pixnar.corpus import parse
from pixnar.corpus.errors import BadRows, BadValueError, Skipped, shown
from pixnar.corpus.lines import LineBatch, Meter, read_lines, split_lines
from pixnar.corpus.parquet import read_parts
from pixnar.corpus.reader import Corpus, NoCorpusError, open_corpus
from pixnar.corpus.records import Batch

_SUFFIXES = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz", ".parquet")


def read_texts(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    skip_bad_rows: bool = False,
    progress: Progress | None = None,
    skipped: Skipped | None = None,
) -> Iterator[str]:
    r"""Stream the docids in .txt (one per line), .jsonl and .parquet files (key or column docid, else text).

    `-` is standard input, one per line. The texts come as they are in the file; blank lines of a .txt are no docids.
    A bad row stops with its file and line, or with `skip_bad_rows` is left out and counted in `skipped`.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "names.txt")
    ...     _ = file.write_text("a hot drink\n\na plant\n")
    ...     list(read_texts(file))
    ['a hot drink', 'a plant']
    """
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    names = [os.fspath(path) for path in paths]
    for name in names:
        if name != "-":
            check_path(Path(name))
    judge = BadRows(skip_bad_rows, Skipped() if skipped is None else skipped)
    files = [Path(name) for name in names if name != "-"]
    meter = Meter.for_files("texts", files, progress)
    return chain.from_iterable(_texts(name, meter, judge) for name in names)


def docid_texts(
    sources: Sequence[str | os.PathLike[str]],
    *,
    skip_bad_rows: bool = False,
    progress: Progress | None = None,
) -> tuple[Iterator[str], Skipped]:
    """The docids of a corpus (folder or ``irds:ID``), of text files or a folder of them; and a count of skipped rows.

    ``texts, skipped = docid_texts(["my-corpus"])``
    """
    found = docid_source(sources, skip_bad_rows=skip_bad_rows)
    if isinstance(found, Corpus):
        return (row.docid for row in found.docids(progress=progress)), found.skipped
    skipped = Skipped()
    return read_texts(found, skip_bad_rows=skip_bad_rows, progress=progress, skipped=skipped), skipped


def docid_source(sources: Sequence[str | os.PathLike[str]], *, skip_bad_rows: bool = False) -> Corpus | list[str]:
    """What `docid_texts` reads: a corpus, or text files; a folder that holds no corpus is one of shards."""
    names = [os.fspath(source) for source in sources]
    if len(names) != 1:
        return names
    if names[0].startswith("irds:"):
        return open_corpus(names[0], skip_bad_rows=skip_bad_rows)
    folder = Path(names[0])
    if not folder.is_dir():
        return names
    try:
        return open_corpus(folder, skip_bad_rows=skip_bad_rows)
    except NoCorpusError:
        shards = sorted(str(file) for file in folder.iterdir() if file.name.endswith(_SUFFIXES) and file.is_file())
        if not shards:
            raise
        return shards


def _texts(name: str, meter: Meter, judge: BadRows) -> Iterator[str]:
    for batch in text_rows(name, meter):
        judge.settle(batch.file, batch.bad)
        for (text,) in batch.rows:
            yield text


def text_rows(name: str, meter: Meter, lines: Iterator[LineBatch] | None = None) -> Iterator[Batch[tuple[str]]]:
    """The docids of one file, or of some `lines` of it."""
    if name == "-":
        return _plain("<stdin>", split_lines(sys.stdin.buffer.read, lambda: None))
    path = Path(name)
    kind = name.removesuffix(".gz")
    if kind.endswith(".parquet"):
        return read_parts([path], [("docid", "text")], lambda _: lambda values: _one(values[0], "docid"), meter)
    lines = lines or read_lines(path, meter)
    return _plain(name, lines) if kind.endswith(".txt") else parse.read_rows(name, lines, _from_json)


def _plain(name: str, batches: Iterable[LineBatch]) -> Iterator[Batch[tuple[str]]]:
    for numbers, lines, bad in batches:
        rows = [(line,) for line in lines if parse.names_something(line)]
        yield Batch(name, numbers, rows, [row for row in bad if row.reason != "blank line"])


def _from_json(line: str) -> tuple[str]:
    row = parse.json_object(line)
    for key in ("docid", "text"):
        if key in row:
            return _one(row[key], key)
    raise BadValueError("missing key", 'no key "docid" or "text"')


def _one(value: object, key: str) -> tuple[str]:
    text = parse.a_text(value, key)
    if not parse.names_something(text):
        raise BadValueError("empty docid", f'"{key}" {shown(text)} is empty after normalisation')
    return (text,)


def check_path(path: Path) -> None:
    """Raise if a file of texts is not there, or of an unknown kind."""
    if path.is_dir():
        raise CorpusError(f"{path} is a folder; give files ({', '.join(_SUFFIXES)}) or - for standard input")
    if not path.is_file():
        raise CorpusError(f"no file or folder {path}; give a corpus folder, files ({', '.join(_SUFFIXES)}), or -")
    if not path.name.endswith(_SUFFIXES):
        raise CorpusError(f"{path}: unknown kind of file; give files ending in {', '.join(_SUFFIXES)}")
