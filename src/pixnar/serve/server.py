"""What a running server has: an index, workers before it, what is counted, and whether it is closing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pixnar.serve.backend import Holding
from pixnar.serve.handlers import Job
from pixnar.serve.keys import Keys
from pixnar.serve.limits import Limits
from pixnar.serve.logs import Log
from pixnar.serve.metrics import Metrics
from pixnar.serve.queue import Desk


class Server:
    """All that a running server has: the index, who waits for it, what is counted, and whether it is closing."""

    def __init__(self, shelf: Holding, desk: Desk[Job], metrics: Metrics, limits: Limits, keys: Keys, log: Log) -> None:
        self.shelf, self.desk, self.metrics, self.limits, self.keys, self.log = shelf, desk, metrics, limits, keys, log
        self.draining = False


def make_server(
    shelf: Holding,
    limits: Limits | None = None,
    *,
    keys: Keys | None = None,
    workers: int = 2,
    batch: int = 1,
    log: Log | None = None,
) -> Server:
    """A desk with workers in front of a shelf, and their figures."""
    limits = limits or Limits()

    def work(jobs: Sequence[Job]) -> Sequence[Any]:
        return shelf.answers(jobs, lambda stage, seconds: metrics.stages.labels(stage).observe(seconds))

    def heard(event: str) -> None:
        if event == "index-swapped":
            metrics.swaps.inc()
            desk.calibrate(shelf.seconds)
        elif event == "index-refused":
            metrics.refusals.inc()

    def watch(waited: float, taken: int) -> None:
        metrics.stages.labels("wait").observe(waited)
        metrics.batches.observe(taken)

    desk: Desk[Job] = Desk(work, limits, workers=workers, batch=batch, seconds=shelf.seconds, watch=watch)
    metrics = Metrics(
        {
            "queue_queries": ("Queries that wait for a worker.", lambda: desk.waiting),
            "running_queries": ("Queries that are worked on.", lambda: desk.running),
            "documents": ("Documents in the docid table.", lambda: int(shelf.facts()["documents"])),
        }
    )
    shelf.listeners.append(heard)
    return Server(shelf, desk, metrics, limits, keys or Keys([]), log or Log())
