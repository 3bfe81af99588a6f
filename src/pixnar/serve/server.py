"""Parts of a running server and how they are connected; among them the backend, an index here or elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pixnar.serve.handlers import Job, Watch
from pixnar.serve.keys import ApiKeys
from pixnar.serve.limits import Limits
from pixnar.serve.logs import Log
from pixnar.serve.metrics import Metrics
from pixnar.serve.queue import AdmissionQueue
from pixnar.serve.schemas import Addition


class Server:
    """Parts of a running server: backend, queue, metrics, limits, keys, log; `draining` while it shuts down."""

    def __init__(
        self, backend: Backend, queue: AdmissionQueue[Job], metrics: Metrics, limits: Limits, keys: ApiKeys, log: Log
    ) -> None:
        self.backend, self.queue, self.metrics, self.limits, self.keys, self.log = (
            backend,
            queue,
            metrics,
            limits,
            keys,
            log,
        )
        self.draining = False


def make_server(
    backend: Backend,
    limits: Limits | None = None,
    *,
    keys: ApiKeys | None = None,
    workers: int = 2,
    batch: int = 1,
    log: Log | None = None,
) -> Server:
    """A server around a backend: a queue with workers, and metrics of both."""
    limits = limits or Limits()

    def work(jobs: Sequence[Job]) -> Sequence[Any]:
        return backend.answers(jobs, lambda stage, seconds: metrics.stages.labels(stage).observe(seconds))

    def on_event(event: str) -> None:
        if event == "index-swapped":
            metrics.swaps.inc()
            queue.calibrate(backend.seconds)
        elif event == "index-refused":
            metrics.refusals.inc()

    def watch(waited: float, size: int) -> None:
        metrics.stages.labels("wait").observe(waited)
        metrics.batches.observe(size)

    queue: AdmissionQueue[Job] = AdmissionQueue(
        work, limits, workers=workers, batch=batch, seconds=backend.seconds, watch=watch
    )
    metrics = Metrics(
        {
            "queue_queries": ("Queries that wait for a worker.", lambda: queue.waiting),
            "running_queries": ("Queries that are worked on.", lambda: queue.running),
            "documents": ("Documents in the docid table.", lambda: int(backend.facts()["documents"])),
        }
    )
    backend.listeners.append(on_event)
    return Server(backend, queue, metrics, limits, keys or ApiKeys([]), log or Log())


class Backend(Protocol):
    """An index in service: in this process (`LiveIndex`) or elsewhere."""

    seconds: float  # time of one query
    listeners: list[Callable[[str], None]]  # called with the name of each event

    @property
    def name(self) -> str:
        """Name of the index."""
        ...

    def answers(self, jobs: Sequence[Job], watch: Watch | None = None) -> list[bytes | Exception]:
        """A JSON result for each job, or its error; `watch` receives the seconds of each stage."""
        ...

    def facts(self) -> dict[str, Any]:
        """Counts of documents, docids, tokens and slots; the sources that rank; the metadata keys of filters."""
        ...

    def add(self, addition: Addition, limits: Limits) -> None:
        """Add documents and docids, all or none."""
        ...

    def remove(self, doc_ids: Sequence[str], docids: Sequence[str], limits: Limits) -> None:
        """Remove documents, docids, or pairs of both."""
        ...

    def close(self) -> None:
        """Release the index."""
        ...
