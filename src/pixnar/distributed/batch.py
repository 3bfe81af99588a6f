"""Batch search: answers to a file of queries, in pieces that can be lost and made again without changing a byte.

Queries are copied into a working folder beside the target and cut into pieces of `batch` by their place alone. Every
query is encoded and searched alone, by one thread, since an encoder gives other last bits in other company; so a piece
is a function of the index and of its queries: whoever makes it, and however often, it is the same file. When all are
there they are joined in order. A run that was killed is resumed.

The working folder is locked during a run, and every piece bears a seal of all settings it was made with, the state of
the index among them: pieces of different runs are never joined.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

import pixnar
from pixnar.base.errors import CorpusError, FileFormatError, MissingExtraError, PixnarError
from pixnar.base.progress import Progress
from pixnar.base.storage import UNFINISHED, atomic_write, check_writable, file_digest, gzipped, write_json
from pixnar.base.workdir import WHOLE, Workdir, may_resume
from pixnar.corpus import Skipped, parse
from pixnar.corpus.lines import Meter, read_lines
from pixnar.corpus.reader import Check, sound_rows
from pixnar.corpus.records import BadRows, IdSet, Query, is_text, shown
from pixnar.evaluation.queries import run_lines
from pixnar.index import Index
from pixnar.index.files import DOCIDS
from pixnar.index.manifest import NAME as MANIFEST
from pixnar.index.manifest import fusion_of, read_manifest
from pixnar.search import Hit
from pixnar.search.types import SearchOptions
from pixnar.table import DocidTable
from pixnar.table.folder import TableFolder

_PLAN, _QUERIES = "plan.json", "queries.jsonl"
_PIECES = "piece-*.arrow"
_WRITTEN = rf"(?:plan\.json|queries\.jsonl|piece-\d{{7,}}\.arrow|{WHOLE})"
_FILES = re.compile(rf"{_WRITTEN}|\.{_WRITTEN}\..*{re.escape(UNFINISHED)}")
_AT_ONCE = 4096  # ids of documents that are looked up together


@dataclass(frozen=True)
class BatchOptions:
    """Options of a batch search, the same for every query."""

    k: int = 10
    where: str | None = None
    threshold: float | None = None
    sources: str = "all"
    full: bool = False
    batch: int = 256  # queries of a piece
    spelling: bool | None = None  # None: as the index has it


@dataclass(frozen=True)
class Piece:
    """Some queries in a row: where they lie in the working folder's copy."""

    number: int
    begin: int
    end: int


@dataclass(frozen=True)
class BatchJob:
    """A batch search as workers need it beside their pieces."""

    index: Path
    queries: Path  # the working folder's copy
    options: BatchOptions
    state: str  # of the index, as `fingerprint` tells it
    seal: str  # borne by every piece


class Workers(Protocol):
    """Workers that make pieces: a call gives the number and the bytes of each, in any order."""

    def __call__(self, job: BatchJob, pieces: Sequence[Piece]) -> Iterator[tuple[int, bytes]]:
        """Make them."""
        ...


def search_file(
    index: str | os.PathLike[str],
    queries: str | os.PathLike[str],
    target: str | os.PathLike[str],
    options: BatchOptions | None = None,
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
    a TREC run, by its ending. It is there whole or not at all. Ids of queries must be unique and fit the format; they,
    the filter and the sources are judged before anything is searched. The index must stay as it is until the end.

    `overwrite` replaces a target that is there, and starts anew where an unfinished run with other settings lies.
    Without `workers` the pieces are made here, on `threads`.
    """
    options, folder, out, asked = options or BatchOptions(), Path(index), Path(target), Path(queries)
    kind = format_of(out)
    _check_target(out, asked, overwrite)
    content, state = read_manifest(folder), fingerprint(folder)
    fusion_of(content, options.sources)
    _check_options(folder, options, kind)
    settings = asdict(options) | {
        "index": state,
        "queries": _digest(asked),
        "skip_bad_rows": skip_bad_rows,
        "pixnar": pixnar.__version__,
    }
    with _claimed(out) as work:
        _check_target(out, asked, overwrite)  # another run may have written it since
        plan = _begun(work, settings, overwrite)
        if plan is None:
            judge = BadRows(skip_bad_rows, Skipped() if skipped is None else skipped)
            plan = _begin(work, settings, _read(asked, kind, judge, progress))
        files = [_file(work.path, piece.number) for piece in plan.pieces]
        missing = [piece for piece, file in zip(plan.pieces, files, strict=True) if not file.exists()]
        job = BatchJob(folder.resolve(), (work.path / _QUERIES).resolve(), options, state, _seal(settings))
        done = len(files) - len(missing)
        for number, packed in (workers or LocalWorkers(threads))(job, missing) if missing else ():
            with atomic_write(files[number]) as file:
                file.write(packed)
            done += 1
            if progress:
                progress("searching", min(done * options.batch, plan.count), plan.count)
        _check_state(job)  # files are mapped: who writes over them changes what workers see
        with work.output() as file:
            join(file, out, files, job.seal)
        work.remove()
    return plan.count


def fingerprint(index: Path) -> str:
    """What an index answers with: it changes when the index is built again, or its docids change."""
    folder = TableFolder(index / DOCIDS)
    manifest = folder.manifest()
    changes = folder.path / manifest.changes
    return f"{file_digest(index / MANIFEST)}-{manifest.seal:016x}-{file_digest(changes) if changes.exists() else 0}"


class LocalWorkers:
    """Makes pieces in this process."""

    def __init__(self, threads: int = 0) -> None:
        self._threads = threads or os.cpu_count() or 1

    def __call__(self, job: BatchJob, pieces: Sequence[Piece]) -> Iterator[tuple[int, bytes]]:
        """See `Workers`."""
        opened = open_index(job)
        for piece in pieces:
            yield piece.number, answered(opened, job, piece, self._threads)


def open_index(job: BatchJob) -> Index:
    """The index as pieces are made with; an error if it is not what it was when the run began."""
    options = job.options
    opened = Index.load(job.index, threads=1, shortlist=not options.full, sources=options.sources, warm_up=True)
    _check_state(job)
    return opened


def answered(index: Index, job: BatchJob, piece: Piece, threads: int = 1) -> bytes:
    """One piece: what its queries find, as an Arrow file."""
    options = job.options
    with open(job.queries, "rb") as file:
        file.seek(piece.begin)
        rows = [json.loads(line) for line in file.read(piece.end - piece.begin).splitlines()]

    def search(row: tuple[str, str]) -> list[Hit]:
        asked = SearchOptions(k=options.k, threshold=options.threshold, where=options.where, spelling=options.spelling)
        return index.searcher.search([row[1]], asked)[0]

    with ThreadPoolExecutor(threads) as pool:
        hits = list(pool.map(search, rows) if threads > 1 else map(search, rows))
    ranked = [
        (query_id, rank, *hit[:3])  # titles are not kept
        for (query_id, _), best in zip(rows, hits, strict=True)
        for rank, hit in enumerate(best, 1)
    ]
    try:
        return packed_piece(ranked, job.seal)
    except UnicodeEncodeError as error:
        raise PixnarError(
            f"the id or docid {shown(error.object)} in {job.index} is no Unicode text and cannot stand in a table: "
            "name the document otherwise"
        ) from error


@dataclass(frozen=True)
class _BatchPlan:
    """How the queries are cut."""

    pieces: list[Piece]
    count: int  # of queries


def _check_target(out: Path, queries: Path, overwrite: bool) -> None:
    """Raise if the target must not or could not be written."""
    check_writable(out)
    if not out.exists():
        return
    if queries.exists() and out.samefile(queries):
        raise PixnarError(f"{out} holds the queries themselves: choose another name for what they find")
    if not overwrite:
        raise PixnarError(f"{out} exists: choose another name or say --overwrite")


def _check_options(index: Path, options: BatchOptions, kind: str) -> None:
    """Raise if the filter means nothing here, or what may be found cannot be written."""
    if options.batch < 1:
        raise PixnarError(f"pieces of {options.batch} queries: give 1 or more")
    snapshot = DocidTable.open(index / DOCIDS).snapshot()
    allowed = snapshot.allowed(where=options.where)
    if kind != "trec":
        return
    size = len(snapshot.documents) + len(snapshot.new)
    wanted = np.arange(size)
    if allowed is not None:
        wanted = np.flatnonzero(np.unpackbits(allowed.view(np.uint8), count=size, bitorder="little"))
    for first in range(0, len(wanted), _AT_ONCE):
        for doc_id in snapshot.doc_ids(wanted[first : first + _AT_ONCE].tolist()):
            if not (_is_word(doc_id) and is_text(doc_id)) and snapshot.numbers.get(doc_id, 0) is not None:
                raise PixnarError(
                    f"the document id {shown(doc_id)} of {index} cannot stand in a TREC run, which is Unicode text in "
                    "columns between blanks: let the target end in .parquet or .jsonl"
                )


def _check_state(job: BatchJob) -> None:
    if fingerprint(job.index) != job.state:
        raise PixnarError(
            f"{job.index} was changed while it was searched: keep it as it is, or search a copy, and start anew with "
            "--overwrite"
        )


def _digest(queries: Path) -> str:
    if not queries.is_file():
        raise CorpusError(f'no file {queries}: give one with {{"_id": "q1", "text": "…"}} on each line')
    return file_digest(queries)


def _seal(settings: dict[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(settings, sort_keys=True).encode())


@contextlib.contextmanager
def _claimed(out: Path) -> Iterator[Workdir]:
    """The working folder of a target, locked; when the block raises and no piece is there, it is gone."""
    work = Workdir(out, files=_FILES)
    with work.claim():
        try:
            yield work
        except BaseException:
            work.forget(_PIECES)
            raise


def _begun(work: Workdir, settings: dict[str, Any], overwrite: bool) -> _BatchPlan | None:
    """The plan of a run that was begun with the same settings; None to begin anew."""
    path = work.path / _PLAN
    try:
        content = json.loads(path.read_bytes())
        noted, ends = dict(content["settings"]), list(map(int, content["ends"]))
        plan = _BatchPlan(_pieces(ends), int(content["count"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        if overwrite:
            return None
        raise FileFormatError(f"{path} is damaged ({error}): remove {work.path}, or say --overwrite") from error
    disposable = overwrite or not any(work.path.glob(_PIECES))
    return plan if may_resume(work.path, noted, settings, overwrite=disposable) else None


def _begin(work: Workdir, settings: dict[str, Any], queries: Iterable[Query]) -> _BatchPlan:
    """Copy the queries and write down how they are cut."""
    work.clear()
    ends, count = [0], 0
    with atomic_write(work.path / _QUERIES) as file:
        for query in queries:
            file.write(json.dumps([query.query_id, query.text]).encode() + b"\n")
            count += 1
            if count % settings["batch"] == 0:
                ends.append(file.tell())
        if file.tell() > ends[-1]:
            ends.append(file.tell())
    write_json(work.path / _PLAN, {"settings": settings, "ends": ends, "count": count})
    return _BatchPlan(_pieces(ends), count)


def _pieces(ends: Sequence[int]) -> list[Piece]:
    return [Piece(number, begin, end) for number, (begin, end) in enumerate(pairwise(ends))]


def _read(queries: Path, kind: str, judge: BadRows, progress: Progress | None) -> Iterator[Query]:
    """The queries, their ids judged."""
    lines = read_lines(queries, Meter.for_files("reading queries", [queries], progress))
    checks: list[Check] = [(0, _all_that(is_text), "no Unicode text: query id")]
    if kind == "trec":
        checks.append((0, _all_that(_is_word), "blank, which a TREC run cannot hold, in query id"))
    checks.append((0, IdSet().add, "duplicate query id"))
    batches = parse.read_rows(str(queries), lines, parse.query_from_json)
    return chain.from_iterable(sound_rows(batches, checks, judge))


def _all_that(is_right: Callable[[str], bool]) -> Callable[[Sequence[str]], NDArray[np.bool_]]:
    return lambda ids: np.fromiter(map(is_right, ids), np.bool_, len(ids))


def _is_word(text: str) -> bool:
    return text.split() == [text]


def _file(work: Path, number: int) -> Path:
    return work / f"piece-{number:07}.arrow"


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
_SEAL = b"pixnar.settings"
_GROUP = 1 << 17  # rows of a group in a Parquet file, at least


def format_of(target: Path) -> str:
    """The format that a name's ending says."""
    name = target.name.removesuffix(".gz")
    found = FORMATS.get(Path(name).suffix)
    if found is None or (found == "parquet" and name != target.name):
        endings = ", ".join(FORMATS)
        raise PixnarError(f"{target} does not say its format: let it end in one of {endings} (text also in .gz)")
    return found


def packed_piece(rows: Sequence[tuple[Any, ...]], seal: str) -> bytes:
    """Rows of the columns as an Arrow file that bears a seal."""
    columns = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    schema, sink = _SCHEMA.with_metadata({_SEAL: seal}), pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(pa.table(arrays, schema=schema))
    content: bytes = sink.getvalue().to_pybytes()
    return content


def join(file: IO[bytes], target: Path, pieces: Sequence[Path], seal: str) -> None:
    """Write all pieces, in their order, in the format of the target; few of them are held at a time."""
    kind = format_of(target)
    tables = (_table(path, seal) for path in pieces)
    if kind == "parquet":
        _write_parquet(file, tables)
        return
    write: Callable[[Any], Iterable[str]] = _trec if kind == "trec" else _json_lines
    with gzipped(file, target, 9) as text:
        for table in tables:
            text.writelines(line.encode() for line in write(table))


def _table(path: Path, seal: str) -> Any:
    try:
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise FileFormatError(f"{path} is damaged: remove it, and run the command again to make it anew") from error
    if (table.schema.metadata or {}).get(_SEAL) != seal.encode():
        raise FileFormatError(
            f"{path} was made with other settings: remove it, and run the command again to make it anew"
        )
    return table.replace_schema_metadata()


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


def _json_lines(table: Any) -> Iterator[str]:
    for row in table.to_pylist():
        yield json.dumps(row, ensure_ascii=False) + "\n"


def _trec(table: Any) -> Iterator[str]:
    """The hits of a query begin with rank 1."""
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
