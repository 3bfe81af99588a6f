"""Tabular data: a CSV, TSV, JSONL or Parquet file, a DataFrame, dictionaries or a mapping becomes a corpus folder."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import xxhash

from pixnar.base.errors import CorpusError, MissingExtraError
from pixnar.base.normalize import normalize
from pixnar.corpus.reader import Corpus, open_corpus
from pixnar.corpus.records import DocidRow, Document, shown
from pixnar.corpus.write import write_corpus

SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
_GUESSES = {
    "id": ("_id", "id", "doc_id", "docid", "sku", "code", "key", "url"),
    "title": ("title", "name", "label", "heading", "question"),
    "text": ("text", "description", "body", "content", "abstract", "passage", "answer"),
    "names": ("names", "docids", "keywords", "queries", "synonyms", "aliases", "also called", "tags"),
}
_BETWEEN_NAMES = re.compile(r"\s*[;|\n]\s*")  # in one cell
_AT_ONCE = 10_000  # rows of a Parquet file
_NOTE = "Converted from a table"


class TableColumns(NamedTuple):
    """Which column of a table holds what; empty where no column does. Other columns become metadata."""

    id: str
    title: str
    text: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        """What a user is shown: what each column is taken for."""
        parts = [f"{kind} from {value!r}" for kind, value in zip(self._fields[:3], self[:3], strict=True) if value]
        return ", ".join([*parts, *(f"names from {name!r}" for name in self.names)])


def is_table(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a file of rows that can be converted.

    >>> is_table("no/such/file.csv")
    False
    """
    name = os.fspath(path)
    return name.removesuffix(".gz").endswith(SUFFIXES) and Path(name).is_file()


def guess_columns(
    columns: Sequence[str],
    *,
    id: str | None = None,
    title: str | None = None,
    text: str | None = None,
    names: str | Sequence[str] | None = None,
) -> TableColumns:
    """What the columns of a table hold: as given, or guessed by their names.

    >>> guess_columns(["sku", "Name", "price", "description"])
    TableColumns(id='sku', title='Name', text='description', names=())
    >>> print(guess_columns(["sku", "name", "also called"], names="also called"))
    id from 'sku', title from 'name', names from 'also called'
    """
    wanted = [part.strip() for part in names.split(",")] if isinstance(names, str) else list(names or [])
    for column in (id, title, text, *wanted):
        if column is not None and column not in columns:
            raise CorpusError(f"no column {column!r}: the columns are {', '.join(columns)}")
    by_name = {column.strip().lower(): column for column in reversed(columns)}

    def guess(kind: str) -> str:
        taken = {id, title, text, *wanted}
        return next((by_name[name] for name in _GUESSES[kind] if name in by_name and by_name[name] not in taken), "")

    if title is None and (named := next((column for column in wanted if column.lower() in _GUESSES["title"]), None)):
        title = named  # a name that is also the title

    found = TableColumns(
        guess("id") if id is None else id,
        guess("title") if title is None else title,
        guess("text") if text is None else text,
        tuple(wanted) or tuple(filter(None, [guess("names")])),
    )
    if not (found.title or found.text or found.names):
        raise CorpusError(f"no column with titles, texts or names among {', '.join(columns)}: say which they are")
    return found


def convert_table(
    data: Any,
    folder: str | os.PathLike[str],
    *,
    id: str | None = None,
    title: str | None = None,
    text: str | None = None,
    names: str | Sequence[str] | None = None,
    keep: str = "",
) -> tuple[Corpus, TableColumns]:
    """Write the rows of a table as a corpus folder, unless the folder already has them.

    `data` is a path, a list of dictionaries, a pandas or polars DataFrame, or a mapping from id to names. Every title
    and every name becomes a docid; a cell may hold several names, separated by ";" or "|". Where there is text and no
    column of names, the corpus has no docids, and a fit makes them of the text. A folder with anything else in it is
    never replaced; `keep`, a remedy in words, says that one made of another table must not be either.
    """
    rows = list(_rows(data))
    if not rows:
        raise CorpusError("the table has no rows: nothing to search for")
    columns = guess_columns(
        list(dict.fromkeys(key for row in rows for key in row)), id=id, title=title, text=text, names=names
    )
    documents, docids = _records(rows, columns)
    try:
        content = json.dumps([documents, docids], default=str, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise CorpusError(f"the table has values that cannot be kept ({error}): leave their column out") from error
    state = xxhash.xxh3_128_hexdigest(content.encode("utf-8", "surrogatepass"))
    note = f"{_NOTE} ({columns}); state {state}.\n"
    where = Path(folder)
    if _note_of(where) != note:
        if where.exists() and not _is_ours(where):
            raise CorpusError(f"{where} holds files that are not a converted table: move it, or choose another output")
        if keep and where.exists():
            raise CorpusError(f"{where} was made of another table, and work on it has begun: {keep}")
        write_corpus(where, documents, docids, [], {}, overwrite=True, readme=note)
    return open_corpus(where), columns


def _note_of(folder: Path) -> str:
    try:
        return (folder / "README.md").read_text(encoding="utf-8")
    except OSError:
        return ""


def _is_ours(folder: Path) -> bool:
    """Whether a folder has what `convert_table` wrote and nothing that anybody added: queries or judgements."""
    if not any(folder.iterdir()):
        return True
    queries = folder / "queries.jsonl"
    untouched = not queries.exists() or not queries.stat().st_size
    return _note_of(folder).startswith(_NOTE) and untouched and not any((folder / "qrels").glob("*"))


def _records(rows: Sequence[Mapping[str, Any]], columns: TableColumns) -> tuple[list[Document], list[DocidRow]]:
    documents: dict[str, Document] = {}
    docids: list[DocidRow] = []
    used = {columns.id, columns.title, columns.text, *columns.names}
    for number, row in enumerate(rows, 1):
        value = row.get(columns.id) if columns.id else f"row-{number}"
        doc_id = "" if _missing(value) else str(value)
        if not doc_id:
            raise CorpusError(f"row {number} has no {columns.id!r}: every row needs an id")
        if doc_id in documents:
            raise CorpusError(f"row {number}: the id {shown(doc_id)} is there twice; give another id column")
        title = _cell(row, columns.title)
        metadata = {key: _plain(value) for key, value in row.items() if key not in used and not _missing(value)}
        documents[doc_id] = Document(doc_id, title, _cell(row, columns.text), metadata)
        texts = [title, *(name for column in columns.names for name in _names(row.get(column)))]
        distinct = {normalize(name): name for name in reversed(texts) if normalize(name)}
        docids += [DocidRow(doc_id, name) for name in reversed(list(distinct.values()))]
    if columns.text and not columns.names:
        docids = []  # titles alone would keep a fit from making docids of the text
    return list(documents.values()), docids


def _cell(row: Mapping[str, Any], column: str) -> str:
    value = row.get(column) if column else None
    return "" if _missing(value) else str(value).strip()


def _names(value: Any) -> list[str]:
    if isinstance(value, str):
        return [name for name in _BETWEEN_NAMES.split(value) if name]
    if isinstance(value, bytes):
        raise CorpusError(f"the name {shown(value)} is bytes: decode it to text first")
    if isinstance(value, Iterable):
        names = sorted(value, key=str) if isinstance(value, set | frozenset) else value  # the same in every process
        return [str(name) for name in names if not _missing(name)]
    return [] if _missing(value) else [str(value)]


def _missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):  # of pandas
        return True
    return isinstance(value, float | np.floating) and bool(value != value)


def _plain(value: Any) -> Any:
    """A value as metadata can hold it: numbers of numpy and decimals as plain ones."""
    if isinstance(value, np.generic):
        return value.item()
    return float(value) if isinstance(value, Decimal) else value


def _rows(data: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(data, str | os.PathLike):
        yield from _file_rows(Path(data))
    elif isinstance(data, Mapping):
        for doc_id, names in data.items():
            yield {"id": doc_id, "names": [names] if isinstance(names, str) else names}
    elif hasattr(data, "iter_rows"):  # polars
        yield from data.iter_rows(named=True)
    elif hasattr(data, "to_dict") and hasattr(data, "columns"):  # pandas
        yield from ({str(key): value for key, value in row.items()} for row in data.to_dict("records"))
    elif isinstance(data, Iterable):
        for number, row in enumerate(data, 1):
            if not isinstance(row, Mapping):
                raise CorpusError(f"row {number} is a {type(row).__name__}: give dictionaries, one per document")
            yield {str(key): value for key, value in row.items()}
    else:
        raise CorpusError(
            f"a {type(data).__name__} is not a corpus: give a folder, a .csv, .tsv, .jsonl or .parquet file, a "
            "DataFrame, a list of dictionaries, or a mapping from id to names"
        )


def _file_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    suffix = Path(path.name.removesuffix(".gz")).suffix
    if suffix == ".parquet":
        yield from _parquet_rows(path)
        return
    try:
        with _opened(path) as file:
            if suffix == ".jsonl":
                yield from _json_rows(path, file)
            else:
                yield from _csv_rows(path, file, "\t" if suffix == ".tsv" else ",")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise CorpusError(f"{path} cannot be read: {error}") from error


def _opened(path: Path) -> IO[str]:
    if path.name.endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return open(path, encoding="utf-8-sig", newline="")


def _csv_rows(path: Path, file: IO[str], delimiter: str) -> Iterator[Mapping[str, Any]]:
    csv.field_size_limit(2**31 - 1)  # texts may be long
    reader = csv.DictReader(file, delimiter=delimiter, restval="")
    if not reader.fieldnames or len(set(reader.fieldnames)) != len(reader.fieldnames):
        raise CorpusError(f"{path}: the first line must name the columns, each once")
    for row in reader:
        if None in row:
            raise CorpusError(f"{path}:{reader.line_num}: more cells than columns; quote cells that hold {delimiter!r}")
        yield {key: value for key, value in row.items() if value != ""}


def _json_rows(path: Path, file: IO[str]) -> Iterator[Mapping[str, Any]]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise CorpusError(f"{path}:{number}: not valid JSON; give one object per line") from error
        if not isinstance(row, dict):
            raise CorpusError(f"{path}:{number}: expected a JSON object; give one object per line")
        yield row


def _parquet_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise MissingExtraError("reading Parquet", "data") from error
    try:
        for batch in parquet.ParquetFile(path).iter_batches(_AT_ONCE):
            yield from batch.to_pylist()
    except (OSError, ValueError) as error:
        raise CorpusError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
