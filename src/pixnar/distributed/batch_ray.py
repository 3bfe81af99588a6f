"""Pieces of a batch search made by Ray Data: a pool of actors that each open the index once.

A piece is a row that goes through the pool: its place in the file of queries goes in, its bytes come out. What an actor
was at when it died is made again by another, and is the same bytes. Ray Data would go on like that without end, so it
is counted how often each piece was begun.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pixnar.base.errors import PixnarError
from pixnar.distributed.batch import BatchJob, Piece, answered, open_index
from pixnar.distributed.cluster import RETRIES, connected, given_up
from pixnar.index import Index

_MOST_BLOCKS = 2000
_LEVEL = "RAY_BACKEND_LOG_LEVEL"
Watch = Callable[[int, int], None]


@dataclass
class RayWorkers:
    """Makes pieces on a Ray cluster, which is started here unless an address is given.

    Without a number of workers there is one for each processor of the cluster. The index and the working folder must
    lie where every worker sees them, under the same names. `watch` gets the number of each piece and the
    process that made it.
    """

    workers: int | None = None
    address: str | None = None
    threads: int = 1  # of each worker
    watch: Watch | None = None

    def __call__(self, job: BatchJob, pieces: Sequence[Piece]) -> Iterator[tuple[int, bytes]]:
        """See `Workers`."""
        with contextlib.ExitStack() as stack:
            with _hushed():
                executor = stack.enter_context(connected(self.workers, self.address))
            yield from self._made(job, pieces, executor.workers)

    def _made(self, job: BatchJob, pieces: Sequence[Piece], workers: int) -> Iterator[tuple[int, bytes]]:
        import ray
        from ray.data import ActorPoolStrategy, DataContext

        logging.getLogger("ray.data").setLevel(logging.ERROR)
        context = DataContext.get_current()
        context.enable_progress_bars = False
        rows = [asdict(piece) for piece in pieces]
        given = ray.data.from_items(rows, override_num_blocks=min(len(rows), _MOST_BLOCKS))
        made = given.map_batches(
            _BatchWorker,
            fn_constructor_args=(job, self.threads, ray.remote(num_cpus=0)(_Tries).remote(), RETRIES),
            batch_size=1,
            batch_format="numpy",
            compute=ActorPoolStrategy(size=min(workers, len(rows))),
            num_cpus=1,
        )
        try:
            for row in made.iter_rows():
                if row["error"]:
                    raise PixnarError(row["error"])
                if self.watch is not None:
                    self.watch(int(row["number"]), int(row["process"]))
                yield int(row["number"]), bytes(row["content"])
        except ray.exceptions.RayError as error:
            why = (str(error).splitlines() or [type(error).__name__])[0]
            raise PixnarError(
                f"the workers failed ({why}): what was found is kept; run the command again to go on"
            ) from error


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """A Ray that is started here writes little, and what it writes of that does not reach standard error.

    Ray Data's actors would make its core warn of what cannot happen here: their owner lives on.
    """
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    before = os.environ.get(_LEVEL)
    os.environ.setdefault(_LEVEL, "fatal")
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        if before is None:  # what is started later is not told so
            del os.environ[_LEVEL]
        os.close(kept)
        os.close(nowhere)


class _Tries:
    """An actor: it counts who begins which piece, and outlives them."""

    def __init__(self) -> None:
        self._begun: Counter[int] = Counter()

    def begin(self, number: int) -> int:
        """How often a piece was begun, with this time."""
        self._begun[number] += 1
        return self._begun[number]


@dataclass
class _BatchWorker:
    """An actor: it makes pieces. It opens the index with the first, so that a death of opening counts as well."""

    job: BatchJob
    threads: int
    tries: Any
    retries: int
    index: Index | None = field(default=None, init=False)

    def __call__(self, rows: dict[str, Any]) -> dict[str, Any]:
        content, error = b"", ""
        piece = Piece(*(int(rows[name][0]) for name in ("number", "begin", "end")))
        try:
            content = self.made(piece)
        except (PixnarError, OSError) as failure:
            error = str(failure)
        return {"number": [piece.number], "content": [content], "error": [error], "process": [os.getpid()]}

    def made(self, piece: Piece) -> bytes:
        import ray

        if ray.get(self.tries.begin.remote(piece.number)) > self.retries + 1:
            raise given_up("searching", self.retries + 1)
        self.index = self.index or open_index(self.job)
        return answered(self.index, self.job, piece, self.threads)
