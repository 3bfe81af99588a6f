"""Parts of a running server and how they are connected: API keys, log, metrics, queue and backend."""

from __future__ import annotations

import hmac
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from pixnar.base.errors import PixnarError
from pixnar.serve.handlers import Job, Watch
from pixnar.serve.queue import AdmissionQueue, Limits
from pixnar.serve.schemas import Addition

VARIABLE = "PIXNAR_API_KEY"
_SHORTEST = 16


class ApiKeys:
    """A set of API keys, any of which opens.

    >>> keys = ApiKeys(["a key of sixteen"])
    >>> bool(keys), keys.opens("a key of sixteen"), keys.opens("another")
    (True, True, False)
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def opens(self, given: str) -> bool:
        """Whether a key is one of ours; the time this takes reveals nothing about them."""
        given_digest = _digest(given)
        match = False
        for digest in self._digests:
            match |= hmac.compare_digest(digest, given_digest)
        return match


def read_keys(path: Path | None) -> ApiKeys:
    """API keys from a file with one on each line, and from the environment."""
    keys = [os.environ.get(VARIABLE, "").strip()]
    if path is not None:
        try:
            lines = [line.strip() for line in path.read_text().splitlines()]
            keys += [line for line in lines if not line.startswith("#")]
        except (OSError, UnicodeDecodeError) as error:
            raise PixnarError(f"cannot read keys from {path}: {error}; give a text file, a key on each line") from error
    keys = [key for key in keys if key]
    short = [i for i, key in enumerate(keys, 1) if len(key) < _SHORTEST]
    if short:
        raise PixnarError(f"API key {short[0]} has less than {_SHORTEST} characters: make a longer one")
    strange = [i for i, key in enumerate(keys, 1) if not key.isascii()]
    if strange:
        raise PixnarError(f"API key {strange[0]} is not ASCII, so no header can carry it: make another")
    return ApiKeys(keys)


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogatepass")).digest()


class Log:
    """Event log; each line is written under a lock."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()

    def __call__(self, event: str, *, level: str = "info", **facts: Any) -> None:
        """Write one event."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "level": level, "event": event, **facts}, ensure_ascii=False, default=str)
        with self._lock:
            try:
                self._stream.write(line + "\n")
                self._stream.flush()
            except UnicodeEncodeError:
                self._stream.write(line.encode("ascii", "backslashreplace").decode() + "\n")
            except (OSError, ValueError):  # the stream is closed: answers matter more than their log
                pass


class LogHandler(logging.Handler):
    """Handler that writes the log records of libraries as events."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record as one line, without its traceback."""
        self._log("library", level=record.levelname.lower(), logger=record.name, message=record.getMessage())


_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """Counters and histograms of one server."""

    def __init__(self, gauges: Mapping[str, tuple[str, Callable[[], int]]]) -> None:
        """`gauges` maps a name to its description and the function that reads it on every scrape."""
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "pixnar_requests", "Requests by route and HTTP status.", ["route", "status"], registry=registry
        )
        self.latency = Histogram(
            "pixnar_request_seconds", "From arrival to answer.", ["route"], buckets=_SECONDS, registry=registry
        )
        self.stages = Histogram(
            "pixnar_stage_seconds", "Time of a query in each stage.", ["stage"], buckets=_SECONDS, registry=registry
        )
        self.batches = Histogram(
            "pixnar_batch_queries",
            "Queries that a worker took at once.",
            buckets=(1, 2, 4, 8, 16, 32),
            registry=registry,
        )
        self.errors = Counter(
            "pixnar_errors", "Requests that failed for a reason of the server's own.", registry=registry
        )
        self.swaps = Counter("pixnar_index_swaps", "Times that a new index was put in force.", registry=registry)
        self.refusals = Counter(
            "pixnar_index_refusals", "Times that the index folder could not be used.", registry=registry
        )
        for name, (what, function) in gauges.items():
            Gauge(f"pixnar_{name}", what, registry=registry).set_function(function)

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self.registry)


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
