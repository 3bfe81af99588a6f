"""Corpus folders of Parquet files, read one record batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pixnar.base.errors import CorpusError, MissingExtraError, MissingPartError
from pixnar.base.progress import Progress
from pixnar.corpus import parse
from pixnar.corpus.errors import BadRow, BadValueError
from pixnar.corpus.folder import no_split, sort_splits
from pixnar.corpus.lines import Meter
from pixnar.corpus.records import Batch, DocidRow, Document, Qrel, Query, Row

_ROWS = 2048
_DOC_ID = ("_id", "doc_id", "id")
_QUERY_ID = ("_id", "query_id", "id")


class ParquetFolder:
    """corpus, docids, queries and qrels/SPLIT: each a file NAME.parquet or a folder NAME of such files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def documents(self, stage: str, progress: Progress | None) -> Iterator[Batch[Document]]:
        """All documents; columns other than the id, title and text become metadata."""

        def make(names: list[str]) -> Callable[[tuple[Any, ...]], Document]:
            def document(values: tuple[Any, ...]) -> Document:
                doc_id, text, *others = values
                extra = {name: value for name, value in zip(names, others, strict=True) if value is not None}
                return parse.document(doc_id, extra.pop("title", None), text, extra)

            return document

        parts = self._parts("corpus")
        return read_parts(parts, [_DOC_ID, ("text",)], make, Meter.for_files(stage, parts, progress), others=True)

    def docids(self, stage: str, progress: Progress | None) -> Iterator[Batch[DocidRow]]:
        """All docids."""
        return parquet_docids(self.docid_files(), stage, progress)

    def docid_files(self) -> list[Path]:
        """docids.parquet, or the files of docids/, in the order of their names."""
        return self._parts("docids")

    def queries(self, stage: str, progress: Progress | None) -> Iterator[Batch[Query]]:
        """All queries of all splits."""
        parts = self._parts("queries")
        meter = Meter.for_files(stage, parts, progress)
        return read_parts(parts, [_QUERY_ID, ("text",)], lambda _: _spread(parse.query), meter)

    def qrels(self, split: str, stage: str, progress: Progress | None) -> Iterator[Batch[Qrel]]:
        """The judgements of a split."""
        if split not in self.splits():
            raise no_split(self._folder, split, self.splits())
        wanted = [("query-id", "query_id"), ("corpus-id", "corpus_id", "doc_id"), ("score", "relevance")]
        parts = self._parts(f"qrels/{split}")
        return read_parts(parts, wanted, lambda _: _spread(parse.qrel), Meter.for_files(stage, parts, progress))

    def splits(self) -> list[str]:
        """The splits that have judgements."""
        files = {file.stem for file in (self._folder / "qrels").glob("*.parquet") if file.is_file()}
        return sort_splits(files | {part.parent.name for part in (self._folder / "qrels").glob("*/*.parquet")})

    def _parts(self, name: str) -> list[Path]:
        single = self._folder / f"{name}.parquet"
        parts = sorted((self._folder / name).glob("*.parquet"))
        if single.is_file() and parts:
            raise CorpusError(f"{self._folder} has both {name}.parquet and {name}/*.parquet; remove one of them")
        if not single.is_file() and not parts:
            raise MissingPartError(f"{self._folder} has no {name}.parquet or {name}/*.parquet; add it")
        return [single] if single.is_file() else parts


def parquet_docids(parts: list[Path], stage: str, progress: Progress | None) -> Iterator[Batch[DocidRow]]:
    """The docids in some Parquet files."""
    meter = Meter.for_files(stage, parts, progress)
    return read_parts(parts, [_DOC_ID, ("docid",)], lambda _: _spread(parse.docid_row), meter)


def read_parts(
    parts: list[Path],
    wanted: list[tuple[str, ...]],
    make: Callable[[list[str]], Callable[[tuple[Any, ...]], Row]],
    meter: Meter,
    *,
    others: bool = False,
) -> Iterator[Batch[Row]]:
    """Rows of some Parquet files. `wanted` lists the names each column may have; `make` is given the other columns'."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("reading Parquet", "data") from error
    for path in parts:
        size = path.stat().st_size
        try:
            # Without pre-buffering, memory follows the record batch instead of the row group.
            with pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
                names = file.schema_arrow.names
                first = [_column(path, names, allowed) for allowed in wanted]
                rest = [name for name in names if name not in first] if others else []
                parse_row, number, total = make(rest), 1, max(file.metadata.num_rows, 1)
                for record in file.iter_batches(_ROWS, columns=first + rest):
                    yield _rows(path, number, record, first + rest, parse_row)
                    number += record.num_rows
                    meter.at(size * (number - 1) // total)
        except (pyarrow.ArrowException, OSError) as error:
            why = (str(error).splitlines() or [type(error).__name__])[0]
            raise CorpusError(f"{path}: not readable as Parquet ({why}); copy or write it again") from error
        meter.finish_file(size)


def _rows(
    path: Path, start: int, record: Any, names: list[str], parse_row: Callable[[tuple[Any, ...]], Row]
) -> Batch[Row]:
    columns = [_values(record.column(name)) for name in names]
    numbers, rows, bad = [], [], []
    for number, values in enumerate(zip(*columns, strict=True), start):
        try:
            for value in values:
                if isinstance(value, UnicodeDecodeError):
                    raise BadValueError("invalid UTF-8", f"invalid UTF-8: {value.reason}")
            rows.append(parse_row(values))
            numbers.append(number)
        except BadValueError as error:
            bad.append(BadRow(number, error.reason, error.detail))
    return Batch(str(path), numbers, rows, bad)


def _values(column: Any) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        values = []
        for scalar in column:
            try:
                values.append(scalar.as_py())
            except UnicodeDecodeError as error:
                values.append(error)
    return values


def _column(path: Path, names: list[str], allowed: tuple[str, ...]) -> str:
    for name in allowed:
        if name in names:
            return name
    raise CorpusError(f"{path}: no column {' or '.join(allowed)}; its columns are {', '.join(names)}: rename one")


def _spread(function: Callable[..., Row]) -> Callable[[tuple[Any, ...]], Row]:
    return lambda values: function(*values)
