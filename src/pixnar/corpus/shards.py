"""Docids in shards: files, or stretches of large ones, that are read apart from each other."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple, overload

from pixnar.base.errors import CorpusError
from pixnar.corpus.errors import BadRows, Skipped
from pixnar.corpus.folder import parse_docids
from pixnar.corpus.ids import IdSet
from pixnar.corpus.lines import LineBatch, Meter, cut_points, lines_before, read_lines, read_span
from pixnar.corpus.parquet import parquet_docids
from pixnar.corpus.reader import Check, sound_rows
from pixnar.corpus.records import Batch, DocidRow, Row
from pixnar.corpus.texts import text_rows

LEAST_BYTES = 1 << 20  # of a stretch; less is not worth a job of its own
MOST_BYTES = 256 << 20  # and more is too much to be read again when a worker dies


class Shard(NamedTuple):
    """A file, from one offset to another; all of it where it cannot be cut."""

    path: Path
    begin: int
    end: int
    whole: bool


def cut_files(paths: Sequence[Path], parts: int, least: int = LEAST_BYTES) -> list[Shard]:
    """Files as about `parts` shards of about equal size, or more if they are large, in order.

    Compressed files and Parquet stay whole.
    """
    try:
        sizes = [path.stat().st_size for path in paths]
    except OSError as error:
        raise CorpusError(f"cannot read {error.filename}: {error.strerror}; give files that can be read") from error
    share = min(max(sum(sizes) / max(parts, 1), least, 1), MOST_BYTES)
    shards = []
    for path, size in zip(paths, sizes, strict=True):
        pieces = 1 if path.name.endswith((".gz", ".parquet")) else max(round(size / share), 1)
        cuts = cut_points(path, pieces) if pieces > 1 else [0, size]
        shards += [Shard(path, begin, end, len(cuts) == 2) for begin, end in pairwise(cuts)]
    return shards


def shard_docids(
    shard: Shard, known: IdSet | None, *, skip_bad_rows: bool, skipped: Skipped
) -> Iterator[list[DocidRow]]:
    """The docids of a shard as `Corpus.docids` gives them; those of documents that are not `known` are bad rows."""
    if shard.path.name.endswith(".parquet"):
        batches = parquet_docids([shard.path], "docids", None)
    else:
        batches = parse_docids(shard.path, _lines(shard))
    checks: list[Check] = [] if known is None else [(0, known.contains, "unknown document id")]
    return sound_rows(map(_placed(shard), batches), checks, BadRows(skip_bad_rows, skipped))


def shard_texts(shard: Shard, *, skip_bad_rows: bool, skipped: Skipped) -> Iterator[str]:
    """The docids of a shard as `read_texts` gives them."""
    batches = text_rows(os.fspath(shard.path), Meter("texts", 0, None), None if shard.whole else _lines(shard))
    rows = sound_rows(map(_placed(shard), batches), (), BadRows(skip_bad_rows, skipped))
    return (text for (text,) in chain.from_iterable(rows))


def _lines(shard: Shard) -> Iterator[LineBatch]:
    if shard.whole:
        return read_lines(shard.path, Meter("docids", 0, None))
    return read_span(shard.path, shard.begin, shard.end)


def _placed(shard: Shard) -> Callable[[Batch[Row]], Batch[Row]]:
    """Batches with the numbers that their lines have in the file; the lines before are counted only if one is asked."""
    if shard.whole or shard.begin == 0:
        return lambda batch: batch
    before = functools.cache(lambda: lines_before(shard.path, shard.begin))

    def placed(batch: Batch[Row]) -> Batch[Row]:
        bad = [row._replace(number=row.number + before()) for row in batch.bad]
        return Batch(batch.file, _ShiftedNumbers(batch.numbers, before), batch.rows, bad)

    return placed


class _ShiftedNumbers(Sequence[int]):
    def __init__(self, numbers: Sequence[int], before: Callable[[], int]) -> None:
        self._numbers, self._before = numbers, before

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, at: int) -> int: ...

    @overload
    def __getitem__(self, at: slice) -> list[int]: ...

    def __getitem__(self, at: int | slice) -> int | list[int]:
        if isinstance(at, slice):
            return [number + self._before() for number in self._numbers[at]]
        return self._numbers[at] + self._before()
