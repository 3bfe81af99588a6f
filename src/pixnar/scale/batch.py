"""Answers to a file of queries, however many: in pieces that can be lost and made again without changing a byte.

Queries are copied into a work folder beside the target and cut into pieces of `batch` by their place alone. Every query
is encoded and searched alone, by one thread, since an encoder gives other last bits in other company; so a piece is a
function of the index and of its queries: whoever makes it, and however often, it is the same file. When all are there
they are joined in order. A run that was ended goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Protocol

from pixnar.corpus import Skipped, parse
from pixnar.corpus.badrows import BadRows
from pixnar.corpus.lines import Meter, read_lines
from pixnar.corpus.records import Query
from pixnar.docids.folder import TableFolder
from pixnar.errors import CorpusError, FileFormatError, MissingExtraError, PixnarError
from pixnar.evaluate.trec import run_lines
from pixnar.index import Index
from pixnar.index.files import DOCIDS
from pixnar.index.manifest import NAME as MANIFEST
from pixnar.index.manifest import read_manifest
from pixnar.progress import Progress
from pixnar.search import Hit
from pixnar.storage import atomic_write, check_writable, file_digest

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise MissingExtraError("searching for files of queries", "data") from error

FORMATS = {".parquet": "parquet", ".jsonl": "jsonl", ".trec": "trec", ".run": "trec"}
COLUMNS = ("query_id", "rank", "doc_id", "score", "docid")
_SCHEMA = pa.schema(
    [
        ("query_id", pa.string()),
        ("rank", pa.int32()),
        ("doc_id", pa.string()),
        ("score", pa.float64()),
        ("docid", pa.string()),
    ]
)
_PLAN, _QUERIES = "plan.json", "queries.jsonl"
_GROUP = 1 << 17  # rows of a group in a Parquet file, at least


@dataclass(frozen=True)
class Wish:
    """What is asked of each query."""

    k: int = 10
    where: str | None = None
    threshold: float | None = None
    sources: str = "all"
    full: bool = False
    batch: int = 256  # queries of a piece


@dataclass(frozen=True)
class Piece:
    """Some queries in a row: where they lie in the work folder's copy."""

    number: int
    begin: int
    end: int


class Workers(Protocol):
    """Who makes pieces: gives the number and the bytes of each that was asked for, in any order."""

    def __call__(self, index: Path, queries: Path, wish: Wish, pieces: Sequence[Piece]) -> Iterator[tuple[int, bytes]]:
        """Make them."""
        ...


def search_file(
    index: str | os.PathLike[str],
    queries: str | os.PathLike[str],
    target: str | os.PathLike[str],
    wish: Wish | None = None,
    *,
    workers: Workers | None = None,
    threads: int = 0,
    skip_bad_rows: bool = False,
    skipped: Skipped | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> int:
    """Search for every query of a file like queries.jsonl, plain or .gz; how many there were.

    The target is a table of query_id, rank, doc_id, score and docid in the order of the queries: Parquet, JSON lines or
    a TREC run, by its ending. It is there whole or not at all. `overwrite` starts anew where an unfinished run with
    other settings lies. Without `workers` the pieces are made here, on `threads`.
    """
    wish, folder, out = wish or Wish(), Path(index), Path(target)
    kind = format_of(out)
    check_writable(out)
    read_manifest(folder)
    work = out.with_name(f"{out.name}.work")
    settings = asdict(wish) | {"index": fingerprint(folder), "queries": _digest(Path(queries)), "skip": skip_bad_rows}
    pieces, count = _planned(
        work, settings, Path(queries), overwrite, BadRows(skip_bad_rows, skipped or Skipped()), progress
    )
    missing = [piece for piece in pieces if not _file(work, piece.number).exists()]
    done = len(pieces) - len(missing)
    make = workers or Here(threads)
    if missing:
        for number, content in make(folder, work / _QUERIES, wish, missing):
            with atomic_write(_file(work, number)) as file:
                file.write(content)
            done += 1
            if progress:
                progress("searching", min(done * wish.batch, count), count)
    _join(out, kind, [_file(work, piece.number) for piece in pieces])
    shutil.rmtree(work)
    return count


def format_of(target: Path) -> str:
    """The format that a name's ending says."""
    name = target.name.removesuffix(".gz")
    found = FORMATS.get(Path(name).suffix)
    if found is None or (found == "parquet" and name != target.name):
        endings = ", ".join(FORMATS)
        raise PixnarError(f"{target} does not say its format: let it end in one of {endings} (text also in .gz)")
    return found


def fingerprint(index: Path) -> str:
    """What an index answers with: it changes when the index is built again, or its docids change."""
    folder = TableFolder(index / DOCIDS)
    found = folder.manifest()
    changes = folder.path / found.changes
    return f"{file_digest(index / MANIFEST)}-{found.seal:016x}-{file_digest(changes) if changes.exists() else 0}"


class Here:
    """Makes pieces in this process."""

    def __init__(self, threads: int = 0) -> None:
        self._threads = threads or os.cpu_count() or 1

    def __call__(self, index: Path, queries: Path, wish: Wish, pieces: Sequence[Piece]) -> Iterator[tuple[int, bytes]]:
        """See `Workers`."""
        opened = open_index(index, wish)
        for piece in pieces:
            yield piece.number, answered(opened, queries, wish, piece, self._threads)


def open_index(index: str | os.PathLike[str], wish: Wish) -> Index:
    """An index as pieces are made with."""
    return Index.load(index, threads=1, shortlist=not wish.full, sources=wish.sources, warm_up=True)


def answered(index: Index, queries: Path, wish: Wish, piece: Piece, threads: int = 1) -> bytes:
    """One piece: what its queries find, as an Arrow file."""
    with open(queries, "rb") as file:
        file.seek(piece.begin)
        rows = [json.loads(line) for line in file.read(piece.end - piece.begin).splitlines()]

    def search(row: tuple[str, str]) -> list[Hit]:
        return index.search(row[1], wish.k, threshold=wish.threshold, where=wish.where)

    with ThreadPoolExecutor(threads) as pool:
        hits = list(pool.map(search, rows) if threads > 1 else map(search, rows))
    found = [
        (query_id, rank, *hit)
        for (query_id, _), some in zip(rows, hits, strict=True)
        for rank, hit in enumerate(some, 1)
    ]
    columns = list(zip(*found, strict=True)) or [()] * len(COLUMNS)
    try:
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    except UnicodeEncodeError as error:
        raise PixnarError(
            f"an id or docid is no Unicode text ({error.object!r}): it cannot stand in a table"
        ) from error
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, _SCHEMA) as writer:
        writer.write_table(pa.table(arrays, schema=_SCHEMA))
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _digest(queries: Path) -> str:
    if not queries.is_file():
        raise CorpusError(f'no file {queries}: give one with {{"_id": "q1", "text": "…"}} on each line')
    return file_digest(queries)


def _planned(
    work: Path, settings: dict[str, Any], queries: Path, overwrite: bool, judge: BadRows, progress: Progress | None
) -> tuple[list[Piece], int]:
    """The pieces of a run that was begun with the same settings, or of a new one."""
    with contextlib.suppress(FileNotFoundError):
        try:
            plan = json.loads((work / _PLAN).read_bytes())
            begun, ends, count = plan["settings"], plan["ends"], int(plan["count"])
        except (ValueError, KeyError, TypeError) as error:
            raise FileFormatError(f"{work / _PLAN} is damaged ({error}): remove {work}, or say --overwrite") from error
        if begun == settings:
            return _pieces(ends), count
        if not overwrite:
            name = next((name for name, value in settings.items() if begun.get(name) != value), "version")
            raise PixnarError(
                f"{work} is of an unfinished run with another {name}: say the same to go on, or --overwrite to start "
                "anew"
            )
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    ends, count = [0], 0
    with atomic_write(work / _QUERIES) as file:
        for query in _read(queries, judge, progress):
            file.write(json.dumps([query.query_id, query.text]).encode() + b"\n")
            count += 1
            if count % settings["batch"] == 0:
                ends.append(file.tell())
        if file.tell() > ends[-1]:
            ends.append(file.tell())
    with atomic_write(work / _PLAN) as file:
        file.write(json.dumps({"settings": settings, "ends": ends, "count": count}).encode())
    return _pieces(ends), count


def _pieces(ends: Sequence[int]) -> list[Piece]:
    return [Piece(number, begin, end) for number, (begin, end) in enumerate(pairwise(ends))]


def _read(queries: Path, judge: BadRows, progress: Progress | None) -> Iterator[Query]:
    lines = read_lines(queries, Meter.for_files("reading queries", [queries], progress))
    for batch in parse.read_rows(str(queries), lines, parse.query_from_json):
        judge.settle(batch.file, batch.bad)
        yield from batch.rows


def _file(work: Path, number: int) -> Path:
    return work / f"piece-{number:07}.arrow"


def _join(target: Path, kind: str, pieces: Sequence[Path]) -> None:
    """All pieces in one file, in their order; few of them are held at a time."""
    tables = (_table(path) for path in pieces)
    with atomic_write(target) as file:
        if kind == "parquet":
            _write_parquet(file, tables)
            return
        write: Callable[[Any], Iterable[str]] = _trec if kind == "trec" else _json_lines
        with _packed(file, target) as text:
            for table in tables:
                text.writelines(line.encode() for line in write(table))


def _table(path: Path) -> Any:
    try:
        with pa.memory_map(str(path)) as source:
            return pa.ipc.open_file(source).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise FileFormatError(f"{path} is damaged: remove it, and run the command again to make it anew") from error


def _write_parquet(file: IO[bytes], tables: Iterable[Any]) -> None:
    with pq.ParquetWriter(file, _SCHEMA, compression="zstd") as writer:
        held: list[Any] = []
        for table in tables:
            held.append(table)
            if sum(map(len, held)) >= _GROUP:
                writer.write_table(pa.concat_tables(held).combine_chunks())
                held = []
        if held:
            writer.write_table(pa.concat_tables(held).combine_chunks())


@contextlib.contextmanager
def _packed(file: IO[bytes], target: Path) -> Iterator[IO[bytes]]:
    if target.suffix != ".gz":
        yield file
        return
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
        yield packed  # type: ignore[misc]


def _json_lines(table: Any) -> Iterator[str]:
    for row in table.to_pylist():
        yield json.dumps(row, ensure_ascii=False) + "\n"


def _trec(table: Any) -> Iterator[str]:
    """Queries of the same id stand together in what was read: hits of one begin with rank 1."""
    query = ""
    hits: list[tuple[str, float]] = []
    for row in table.to_pylist():
        if row["rank"] == 1 and hits:
            yield from run_lines(query, hits)
            hits = []
        query = row["query_id"]
        hits.append((row["doc_id"], row["score"]))
    if hits:
        yield from run_lines(query, hits)
