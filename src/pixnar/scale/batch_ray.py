"""Pieces of a batch search made by Ray Data: a pool of actors that each open the index once.

A piece is a row that goes through the pool: its place in the file of queries goes in, its bytes come out. What an actor
was at when it died is made again by another, and is the same bytes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pixnar.errors import PixnarError
from pixnar.scale.batch import Piece, Wish, answered, open_index
from pixnar.scale.cluster import connected

_MOST_BLOCKS = 2000
Watch = Callable[[int, int], None]


@dataclass
class RayWorkers:
    """Makes pieces on a Ray cluster, which is started here unless an address is given.

    The index and the work folder must lie where every worker sees them, under the same names. `watch` is told the
    number of each piece and the process that made it.
    """

    workers: int = 1
    address: str | None = None
    threads: int = 1  # of each worker
    watch: Watch | None = None

    def __call__(self, index: Path, queries: Path, wish: Wish, pieces: Sequence[Piece]) -> Iterator[tuple[int, bytes]]:
        """See `Workers`."""
        # Ray Data's actors make the core write a warning about what cannot happen here: their owner lives on
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
        with connected(self.workers, self.address):
            yield from self._made(index, queries, wish, pieces)

    def _made(self, index: Path, queries: Path, wish: Wish, pieces: Sequence[Piece]) -> Iterator[tuple[int, bytes]]:
        import ray
        from ray.data import ActorPoolStrategy, DataContext

        logging.getLogger("ray.data").setLevel(logging.ERROR)
        context = DataContext.get_current()
        context.enable_progress_bars = False
        rows = [asdict(piece) for piece in pieces]
        given = ray.data.from_items(rows, override_num_blocks=min(len(rows), _MOST_BLOCKS))
        made = given.map_batches(
            _Searcher,
            fn_constructor_args=(str(index.resolve()), str(queries.resolve()), asdict(wish), self.threads),
            batch_size=1,
            batch_format="numpy",
            compute=ActorPoolStrategy(size=min(self.workers, len(rows))),
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


class _Searcher:
    """An actor: it opens the index when it starts, and makes pieces."""

    def __init__(self, index: str, queries: str, wish: dict[str, Any], threads: int) -> None:
        self._threads = threads
        self._queries, self._wish, self._error = Path(queries), Wish(**wish), ""
        try:
            self._index = open_index(index, self._wish)
        except (PixnarError, OSError) as error:
            self._error = str(error)

    def __call__(self, rows: dict[str, Any]) -> dict[str, Any]:
        content, error = b"", self._error
        piece = Piece(*(int(rows[name][0]) for name in ("number", "begin", "end")))
        if not error:
            try:
                content = answered(self._index, self._queries, self._wish, piece, self._threads)
            except (PixnarError, OSError) as failure:
                error = str(failure)
        return {"number": [piece.number], "content": [content], "error": [error], "process": [os.getpid()]}
