"""Pseudo-queries that others have made: MINDER's pickled dictionaries, JSON and TSV files, looked up by document."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from pixnar.base.errors import CorpusError
from pixnar.base.progress import Progress
from pixnar.base.storage import sync_folder
from pixnar.corpus import Skipped, parse
from pixnar.corpus.lines import Meter, read_lines
from pixnar.corpus.records import BadRows, BadValueError

SUFFIXES = (".pkl", ".pickle", ".json", ".jsonl", ".tsv")
_IDS = ("_id", "id", "pid", "doc_id")
_QUERIES = ("queries", "predicted_queries", "query", "docid", "text")

Row = tuple[str, list[str]]


def is_query_file(name: str) -> bool:
    """Whether a name ends like one of the files that `read_queries_of` reads."""
    return name.removesuffix(".gz").endswith(SUFFIXES)


def read_queries_of(
    path: Path, *, skip_bad_rows: bool = False, progress: Progress | None = None, skipped: Skipped | None = None
) -> Iterator[Row]:
    """Stream (document id, queries) from a file, in its order; a document may come several times.

    - ``.pkl``: a pickled dictionary of lists, as MINDER has them (``pid2query_….pkl``). Nothing in it is ever run:
      whatever is not plain data is refused. It is read into memory as a whole.
    - ``.json``: the same as one JSON object.
    - ``.jsonl``: an object a line with an id (`_id`, `id`, `pid`) and `queries`, `predicted_queries` or `query`.
    - ``.tsv``: a line of an id and one query or more.

    All but the first may be compressed (``.gz``).
    """
    if not path.is_file():
        raise CorpusError(f"no file {path} of queries; give one that ends in {', '.join(SUFFIXES)}")
    kind = path.name.removesuffix(".gz")
    if kind.endswith((".pkl", ".pickle")):
        return _of_object(path, _unpickled(path))
    if kind.endswith(".json"):
        return _of_object(path, _from_json(path))
    judge = BadRows(skip_bad_rows, Skipped() if skipped is None else skipped)
    lines = read_lines(path, Meter.for_files("reading queries", [path], progress))
    batches = parse.read_rows(str(path), lines, _json_row if kind.endswith(".jsonl") else _tsv_row)
    return _settled(batches, judge)


def _settled(batches: Iterable[Any], judge: BadRows) -> Iterator[Row]:
    for batch in batches:
        judge.settle(batch.file, batch.bad)
        yield from batch.rows


class _PlainData(pickle.Unpickler):
    """Reads numbers, texts, lists and dictionaries; everything else in a pickle names a class or function first."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _unpickled(path: Path) -> object:
    remedy = "MINDER's files are dictionaries of document ids and lists of texts; save it as JSON: {id: [query, …]}"
    try:
        with open(path, "rb") as file:
            found: object = _PlainData(file).load()
            return found
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror}; give a file that can be read") from error
    except MemoryError:
        raise
    except Exception as error:  # whatever a damaged or foreign pickle leads to
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CorpusError(f"{path} is not plain data in a pickle ({reason}) and is not read; {remedy}") from error


def _from_json(path: Path) -> object:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
            found: object = json.load(file)
            return found
    except (OSError, EOFError) as error:
        raise CorpusError(f"cannot read {path}: {error}; give a file that can be read") from error
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{path} is not valid JSON: {str(error).splitlines()[0]}; correct it") from error


def _of_object(path: Path, found: object) -> Iterator[Row]:
    if not isinstance(found, dict):
        raise CorpusError(f"{path} holds a {type(found).__name__}; a dictionary {{document id: [query, …]}} is needed")
    return (_checked_entry(path, key, value) for key, value in found.items())


def _checked_entry(path: Path, key: object, value: object) -> Row:
    try:
        return parse.an_id(key, "document id"), _texts(value)
    except BadValueError as error:
        raise CorpusError(f"{path}: document {key!r}: {error}; correct it") from error


def _json_row(line: str) -> Row:
    row = parse.json_object(line)
    key = next((name for name in _IDS if name in row), None)
    queries = next((name for name in _QUERIES if name in row), None)
    if key is None or queries is None:
        wanted = _IDS if key is None else _QUERIES
        raise BadValueError("missing key", f"no key {' or '.join(json.dumps(name) for name in wanted)}")
    return parse.an_id(row[key], key), _texts(row[queries])


def _tsv_row(line: str) -> Row:
    doc_id, *queries = line.split("\t")
    if not queries:
        raise BadValueError(
            "wrong number of columns", "expected an id and a query, separated by a tab, found one column"
        )
    return parse.an_id(doc_id, "document id"), queries


def _texts(value: object) -> list[str]:
    if isinstance(value, list | tuple):
        return [parse.a_text(text, "query") for text in value]
    return [parse.a_text(value, "query")]


class QueryLookup:
    """The queries of each document, in the order they were given."""

    def __init__(self, path: Path) -> None:
        """Open what `build` wrote."""
        self._base = sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True)

    @classmethod
    def build(cls, path: Path, rows: Iterable[tuple[str, list[str]]]) -> QueryLookup:
        """Write a lookup, whole or not at all."""
        aside = path.with_name(f"{path.name}.part")
        aside.unlink(missing_ok=True)
        base = sqlite3.connect(aside)
        base.execute("PRAGMA journal_mode = OFF")
        base.execute("PRAGMA synchronous = OFF")  # it is synced as a whole below, before it gets its name
        base.execute("CREATE TABLE queries (document BLOB, query BLOB)")
        base.executemany("INSERT INTO queries VALUES (?, ?)", _pairs(rows))
        base.execute("CREATE INDEX by_document ON queries (document)")
        base.commit()
        base.close()
        with open(aside, "rb") as file:
            os.fsync(file.fileno())
        os.replace(aside, path)
        sync_folder(path.parent)
        return cls(path)

    def of(self, doc_id: str) -> list[str]:
        """The queries of a document."""
        found = self._base.execute("SELECT query FROM queries WHERE document = ? ORDER BY rowid", (_bytes(doc_id),))
        return [query.decode("utf-8", "surrogatepass") for (query,) in found]

    def close(self) -> None:
        """Let go of the file."""
        self._base.close()


def _pairs(rows: Iterable[tuple[str, list[str]]]) -> Iterator[tuple[bytes, bytes]]:
    return ((_bytes(doc_id), _bytes(query)) for doc_id, queries in rows for query in queries)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _quoted(path: Path) -> str:
    return str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
