"""Answers as files: a piece of them, in Arrow's format with a seal, and the table that all pieces are joined to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from pixnar.base.errors import FileFormatError, MissingExtraError, PixnarError
from pixnar.base.storage import gzipped
from pixnar.evaluation.trec import run_lines

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
