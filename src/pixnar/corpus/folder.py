"""Corpus folders: the BEIR layout with docids.jsonl, the MS MARCO layout of TSV files, and Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from pixnar.base.errors import CorpusError, MissingExtraError, MissingPartError
from pixnar.base.progress import Progress
from pixnar.corpus import parse
from pixnar.corpus.lines import LineBatch, Meter, read_lines
from pixnar.corpus.records import BadRow, BadValueError, Batch, DocidRow, Document, IdSet, Qrel, Query, Row

_SPLIT_ORDER = {"train": 0, "dev": 1, "test": 2}


def find_file(folder: Path, name: str) -> Path | None:
    """The file of that name, plain or .gz; both at once would leave it open which one counts."""
    plain, packed = folder / name, folder / f"{name}.gz"
    if plain.is_file() and packed.is_file():
        raise CorpusError(f"{folder} has both {name} and {name}.gz; remove one of them")
    return plain if plain.is_file() else packed if packed.is_file() else None


def need_file(folder: Path, name: str, holds: str) -> Path:
    """`find_file`, or an error that says what the file should hold."""
    path = find_file(folder, name)
    if path is None:
        raise MissingPartError(f"{folder} has no {name} or {name}.gz; add it with {holds}")
    return path


def sort_splits(names: set[str]) -> list[str]:
    """Train, dev, test, then the others by name."""
    return sorted(names, key=lambda name: (_SPLIT_ORDER.get(name, 3), name))


def no_split(where: object, split: str, splits: list[str]) -> CorpusError:
    """The error for a split that is not there."""
    there = f"choose one of: {', '.join(splits)}" if splits else "it has no judgements at all"
    return CorpusError(f"{where} has no split {split!r}; {there}")


def read_qrels(path: Path, stage: str, progress: Progress | None) -> Iterator[Batch[Qrel]]:
    """The judgements in one file."""
    return parse.read_rows(str(path), read_lines(path, Meter.for_files(stage, [path], progress)), parse.qrel_parser())


class BeirFolder:
    """corpus.jsonl, docids.jsonl, queries.jsonl and qrels/SPLIT.tsv, each plain or .gz."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def documents(self, stage: str, progress: Progress | None) -> Iterator[Batch[Document]]:
        """All documents."""
        path = need_file(self._folder, "corpus.jsonl", 'rows {"_id": …, "title": …, "text": …}')
        lines = read_lines(path, Meter.for_files(stage, [path], progress))
        return parse.read_rows(str(path), lines, parse.document_from_json)

    def docids(self, stage: str, progress: Progress | None) -> Iterator[Batch[DocidRow]]:
        """All docids."""
        return docid_rows(self.docid_files(), stage, progress)

    def docid_files(self) -> list[Path]:
        """docids.jsonl, or the shards of a folder docids/, in the order of their names."""
        shards = sorted(file for file in (self._folder / "docids").glob("*.jsonl*") if _is_json(file))
        if shards and find_file(self._folder, "docids.jsonl"):
            raise CorpusError(f"{self._folder} has both docids.jsonl and docids/*.jsonl; remove one of them")
        return shards or [
            need_file(self._folder, "docids.jsonl", 'rows {"_id": …, "docid": …}, or make it: pixnar docids')
        ]

    def queries(self, stage: str, progress: Progress | None) -> Iterator[Batch[Query]]:
        """All queries of all splits."""
        path = need_file(self._folder, "queries.jsonl", 'rows {"_id": …, "text": …}')
        lines = read_lines(path, Meter.for_files(stage, [path], progress))
        return parse.read_rows(str(path), lines, parse.query_from_json)

    def qrels(self, split: str, stage: str, progress: Progress | None) -> Iterator[Batch[Qrel]]:
        """The judgements of a split."""
        path = find_file(self._folder / "qrels", f"{split}.tsv") if split in self.splits() else None
        if path is None:
            raise no_split(self._folder, split, self.splits())
        return read_qrels(path, stage, progress)

    def splits(self) -> list[str]:
        """The splits that have judgements."""
        files = (self._folder / "qrels").glob("*.tsv*")
        return sort_splits({file.name.removesuffix(".gz").removesuffix(".tsv") for file in files if _is_tsv(file)})


class MarcoFolder:
    """collection.tsv, queries[.SPLIT].tsv, qrels[.SPLIT].tsv and docids.tsv, each plain or .gz.

    A qrels.tsv without a split in its name is the split "test". Queries come from all query files; MS MARCO ships
    some queries twice (dev and dev.small), so a row that repeats an earlier *file's* row exactly is no duplicate.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def documents(self, stage: str, progress: Progress | None) -> Iterator[Batch[Document]]:
        """All documents: id, text or id, url, title, text."""
        path = need_file(self._folder, "collection.tsv", "rows id<tab>text or id<tab>url<tab>title<tab>text")
        lines = read_lines(path, Meter.for_files(stage, [path], progress))
        return parse.read_rows(str(path), lines, _collection_parser())

    def docids(self, stage: str, progress: Progress | None) -> Iterator[Batch[DocidRow]]:
        """All docids: document id, docid."""
        return docid_rows(self.docid_files(), stage, progress)

    def docid_files(self) -> list[Path]:
        """docids.tsv."""
        return [need_file(self._folder, "docids.tsv", "rows document-id<tab>docid")]

    def queries(self, stage: str, progress: Progress | None) -> Iterator[Batch[Query]]:
        """All queries of all splits."""
        names = [f"queries.{split}.tsv" for split in self._splits_of("queries")]
        paths = [path for name in ["queries.tsv", *names] if (path := find_file(self._folder, name))]
        if not paths:
            raise MissingPartError(f"{self._folder} has no queries.tsv, queries.SPLIT.tsv; add rows query-id<tab>text")
        return self._queries(paths, Meter.for_files(stage, paths, progress))

    def _queries(self, paths: list[Path], meter: Meter) -> Iterator[Batch[Query]]:
        earlier = IdSet()
        for place, path in enumerate(paths):
            here = IdSet() if place + 1 < len(paths) else None
            for batch in parse.read_rows(str(path), read_lines(path, meter), _query_from_tsv):
                keys = [f"{row.query_id}\t{row.text}" for row in batch.rows]
                fresh = [i for i, known in enumerate(earlier.contains(keys)) if not known]
                if here is not None:
                    here.add(keys)
                numbers, rows = [batch.numbers[i] for i in fresh], [batch.rows[i] for i in fresh]
                yield Batch(batch.file, numbers, rows, batch.bad)
            if here is not None:
                earlier.update(here)

    def qrels(self, split: str, stage: str, progress: Progress | None) -> Iterator[Batch[Qrel]]:
        """The judgements of a split."""
        path = find_file(self._folder, f"qrels.{split}.tsv") if split in self.splits() else None
        if split == "test" and (plain := find_file(self._folder, "qrels.tsv")):
            if path:
                raise CorpusError(f"{self._folder} has both {plain.name} and {path.name} for split 'test'; remove one")
            path = plain
        if path is None:
            raise no_split(self._folder, split, self.splits())
        return read_qrels(path, stage, progress)

    def splits(self) -> list[str]:
        """The splits that have judgements."""
        plain = {"test"} if find_file(self._folder, "qrels.tsv") else set()
        return sort_splits(plain | set(self._splits_of("qrels")))

    def _splits_of(self, kind: str) -> list[str]:
        names = [file.name.removesuffix(".gz") for file in self._folder.glob(f"{kind}.*.tsv*") if _is_tsv(file)]
        return sort_splits({name.removeprefix(f"{kind}.").removesuffix(".tsv") for name in names} - {"tsv"})


def json_docids(path: Path, stage: str, progress: Progress | None) -> Iterator[Batch[DocidRow]]:
    """The docids in one JSONL file."""
    lines = read_lines(path, Meter.for_files(stage, [path], progress))
    return parse.read_rows(str(path), lines, parse.docid_from_json, parse.docids_from_json)


def docid_rows(paths: list[Path], stage: str, progress: Progress | None) -> Iterator[Batch[DocidRow]]:
    """The docids in some files, .jsonl or .tsv, one after the other."""
    meter = Meter.for_files(stage, paths, progress)
    return chain.from_iterable(parse_docids(path, read_lines(path, meter)) for path in paths)


def parse_docids(path: Path, lines: Iterable[LineBatch]) -> Iterator[Batch[DocidRow]]:
    """The docids in lines of a file."""
    if path.name.removesuffix(".gz").endswith(".tsv"):
        return parse.read_rows(str(path), lines, lambda line: parse.docid_row(*parse.columns(line, 2)))
    return parse.read_rows(str(path), lines, parse.docid_from_json, parse.docids_from_json)


def _is_json(file: Path) -> bool:
    return file.name.endswith((".jsonl", ".jsonl.gz")) and file.is_file()


def _is_tsv(file: Path) -> bool:
    return file.name.endswith((".tsv", ".tsv.gz")) and file.is_file()


def _query_from_tsv(line: str) -> Query:
    return parse.query(*parse.columns(line, 2))


def _collection_parser() -> Callable[[str], Document]:
    width = 0  # the first row decides, so that a stray tab does not turn a text into a web address

    def from_tsv(line: str) -> Document:
        nonlocal width
        fields = parse.columns(line, *([width] if width else [2, 4]))
        width = len(fields)
        if width == 2:
            return parse.document(fields[0], "", fields[1], {})
        return parse.document(fields[0], fields[2], fields[3], {"url": fields[1]})

    return from_tsv


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
