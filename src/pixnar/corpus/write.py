"""Corpus writer: writes a corpus folder completely or not at all; checks a corpus, and copies it into this layout."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pixnar.base.errors import CorpusError, MissingPartError
from pixnar.base.progress import Progress
from pixnar.base.storage import gzipped, sync_folder
from pixnar.base.workdir import staged
from pixnar.corpus import parse
from pixnar.corpus.reader import Corpus
from pixnar.corpus.records import BadValueError, DocidRow, Document, Qrel, Query, Row, Skipped, shown

_OURS = re.compile(r"(corpus|docids|queries)\.jsonl(\.gz)?|qrels|README\.md")
_SPLIT_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_HEADER = "query-id\tcorpus-id\tscore\n"


def write_corpus(
    folder: str | os.PathLike[str],
    documents: Iterable[Document],
    docids: Iterable[DocidRow],
    queries: Iterable[Query],
    qrels: Mapping[str, Iterable[Qrel]],
    gzip: bool = False,
    *,
    overwrite: bool = False,
    readme: str | None = None,
) -> None:
    """Write a corpus folder in the BEIR layout with docids; it appears complete or, if anything fails, not at all.

    A folder with something in it is replaced only with `overwrite`, and only if it holds a corpus of this layout and
    nothing else. The same rows give the same bytes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_corpus(folder, [Document("d1", "Tea", "", {})], [DocidRow("d1", "a hot drink")], [], {})
    ...     sorted(os.listdir(folder))
    ['corpus.jsonl', 'docids.jsonl', 'qrels', 'queries.jsonl']
    """
    for split in qrels:
        if not _SPLIT_NAME.fullmatch(split):
            raise CorpusError(f"split {split!r} cannot be a file name; use letters, digits, - and _")
    end = ".gz" if gzip else ""
    with _whole_folder(Path(folder), overwrite) as draft:
        (draft / "qrels").mkdir()
        _write(draft / f"corpus.jsonl{end}", map(_document_line, documents))
        _write(draft / f"docids.jsonl{end}", map(_docid_line, docids))
        _write(draft / f"queries.jsonl{end}", map(_query_line, queries))
        for split, rows in qrels.items():
            _write(draft / "qrels" / f"{split}.tsv{end}", _qrel_lines(rows))
        if readme is not None:
            _write(draft / "README.md", [readme.encode()])
        sync_folder(draft / "qrels")


@contextlib.contextmanager
def _whole_folder(target: Path, overwrite: bool) -> Iterator[Path]:
    """A new folder beside `target` that replaces it when the block ends well and vanishes when it does not."""
    check_target(Path(os.path.abspath(target)), overwrite)
    try:
        with staged(target, CorpusError) as draft:
            yield draft
    except OSError as error:
        raise CorpusError(f"cannot write {target}: {error.strerror or error}; choose another place") from error


def check_target(target: Path, overwrite: bool) -> None:
    """Raise at once if `write_corpus` could not write there."""
    if target.is_symlink():
        raise CorpusError(f"{target} is a symbolic link; give the folder it points to")
    if target.exists() and not target.is_dir():
        raise CorpusError(f"{target} is a file; give a folder to write the corpus to")
    if not target.parent.is_dir():
        raise CorpusError(f"cannot write {target}: the folder {target.parent} does not exist; create it first")
    there = sorted(os.listdir(target)) if target.exists() else []
    if there and not overwrite:
        raise CorpusError(f"{target} is not empty; choose another folder, or replace it with --overwrite")
    if strange := [name for name in there if not _OURS.fullmatch(name)]:
        raise CorpusError(
            f"{target} holds more than a corpus ({shown(strange[0])}) and is not replaced; empty it first"
        )


def _write(path: Path, lines: Iterable[bytes]) -> None:
    with open(path, "wb") as raw:
        with gzipped(raw, path) as file:
            file.writelines(lines)
        raw.flush()
        os.fsync(raw.fileno())


def _json_line(row: dict[str, Any]) -> bytes:
    try:
        return json.dumps(row, ensure_ascii=False, default=_date).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair has no UTF-8; the escape keeps it
        return json.dumps(row, default=_date).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise CorpusError(
            f"row {shown(row.get('_id'))} cannot be written as JSON: {error}; change its values"
        ) from error


def _date(value: object) -> str:
    if isinstance(value, datetime.date | datetime.time):  # a datetime is a date too; Parquet has such columns
        return value.isoformat()
    raise TypeError(f"a {type(value).__name__} is no JSON value")


def _document_line(row: Document) -> bytes:
    doc_id, title, text, metadata = _checked("document", parse.document, row)
    if clash := metadata.keys() & {"_id", "title", "text"}:
        raise CorpusError(f"document {shown(doc_id)}: metadata key {sorted(clash)[0]!r} is taken; rename it")
    return _json_line({"_id": doc_id, "title": title, "text": text, **metadata})


def _docid_line(row: DocidRow) -> bytes:
    doc_id, docid = _checked("docid", parse.docid_row, row)
    return _json_line({"_id": doc_id, "docid": docid})


def _query_line(row: Query) -> bytes:
    query_id, text = _checked("query", parse.query, row)
    return _json_line({"_id": query_id, "text": text})


def _qrel_lines(rows: Iterable[Qrel]) -> Iterator[bytes]:
    yield _HEADER.encode()
    for row in rows:
        try:
            query_id, doc_id, score = parse.qrel(*row)
            if re.search(r"[\t\n\r]|^\s*$", query_id) or re.search(r"[\t\n\r]|^\s*$", doc_id):
                raise BadValueError("id cannot stand in a TSV file", "an id has a tab, a line end or nothing visible")
            line = f"{query_id}\t{doc_id}\t{score}\n".encode()
        except (BadValueError, UnicodeEncodeError) as error:
            raise _refused("judgement", row, error) from error
        yield line


def _checked(kind: str, check: Callable[..., Row], row: Row) -> Row:
    try:
        return check(*row)
    except BadValueError as error:
        raise _refused(kind, row, error) from error


def _refused(kind: str, row: tuple[Any, ...], error: ValueError) -> CorpusError:
    return CorpusError(f"{kind} {shown(tuple(row))} cannot be written: {error}; correct it")


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
