"""Admission queue: bounded, with workers that answer the jobs in it; and the limits of a request.

A worker takes up to `batch` queries at once: one on a CPU, where two workers that encode one text each are as fast as
one batch on two cores and no answer depends on its batch; more on a GPU. A query whose expected wait exceeds the limit
is refused at once, so that admitted queries are answered soon under any load.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Job = TypeVar("Job")


@dataclass(frozen=True)
class Limits:
    """Limits of one server. A request over a limit is refused with a line that says what to change, never cut."""

    k: int = 1000  # documents of a query
    query_characters: int = 2000
    queries: int = 64  # of one request
    ids: int = 10_000  # in allow and forbid, and documents or docids of one change
    width: int = 1000  # of a beam
    body_bytes: int = 1 << 20
    waiting: int = 512  # queries in the queue, however quick they are
    wait_seconds: float = 0.0  # longest expected wait of a new query; 0: twice the time of a query without load
    timeout_seconds: float = 10.0  # for a request to arrive, and again to be answered


class RefusedError(Exception):
    """A refused request: HTTP status, a line for the client, and when to retry."""

    def __init__(self, status: int, line: str, retry_after: float | None = None) -> None:
        super().__init__(line)
        self.status, self.line, self.retry_after = status, line, retry_after


_PATIENCE = 2.0  # without a limit, the longest expected wait in multiples of the time of a query without load
_ALWAYS = 2  # requests that may wait for each worker, however slow it is at the moment
_MEMORY = 0.05  # weight of the newest time in the running mean


@dataclass
class _Pending(Generic[Job]):
    job: Job
    done: Future[Any] = field(default_factory=Future)
    since: float = field(default_factory=time.perf_counter)


class AdmissionQueue(Generic[Job]):
    """Bounded queue of jobs: `ask` admits all jobs of a request or none; `work` answers a batch on a worker's thread.

    Requests take turns: workers take one job of each request, then one of the next, so that a large request does not
    hold up small ones.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Job]], Sequence[Any]],
        limits: Limits,
        *,
        workers: int = 2,
        batch: int = 1,
        seconds: float = 0.01,
        watch: Callable[[float, int], None] | None = None,
    ) -> None:
        """`seconds`: first estimate of a query's time; `watch`: called with a batch's longest wait and its size."""
        self._work, self._limits, self._batch, self._watch = work, limits, max(1, batch), watch
        self._seconds = self._unloaded_seconds = seconds
        self._requests: deque[deque[_Pending[Job]]] = deque()  # the jobs of each request
        self._changed = threading.Condition()
        self._running = 0
        self._closing = False
        self._workers = [threading.Thread(target=self._serve, name=f"worker-{i}", daemon=True) for i in range(workers)]
        for worker in self._workers:
            worker.start()

    @property
    def waiting(self) -> int:
        """Queries that no worker has taken yet."""
        with self._changed:
            return sum(map(len, self._requests))

    @property
    def running(self) -> int:
        """Queries that workers are answering."""
        return self._running

    def calibrate(self, seconds: float) -> None:
        """Set the time of a query without load; it differs between indexes."""
        with self._changed:
            self._seconds = self._unloaded_seconds = seconds

    def expected_wait(self) -> float:
        """Seconds until a worker would take the first query of a request that arrives now."""
        ahead = len(self._requests) + max(0, self._running - len(self._workers) + 1)
        return ahead * self._seconds / len(self._workers)

    def full(self, jobs: int = 1) -> RefusedError | None:
        """The refusal of this many more jobs; None if there is room."""
        with self._changed:
            if self._closing:
                return RefusedError(503, "the server is shutting down: ask again, or another server", 1)
            if self._room(jobs):
                return None
            self._drop_cancelled()
            if self._room(jobs):
                return None
            waiting = sum(map(len, self._requests))
            line = f"{waiting} queries wait already: ask again in a moment, or less often"
            return RefusedError(429, line, math.ceil(self.expected_wait()))

    def _room(self, jobs: int) -> bool:
        if not self._requests:
            return True
        if sum(map(len, self._requests)) + jobs > self._limits.waiting:
            return False
        limit = self._limits.wait_seconds or _PATIENCE * self._unloaded_seconds
        return len(self._requests) < _ALWAYS * len(self._workers) or self.expected_wait() <= limit

    def _drop_cancelled(self) -> None:
        """Drop jobs whose clients have given up."""
        for request in list(self._requests):
            left = [pending for pending in request if not pending.done.cancelled()]
            if len(left) < len(request):
                request.clear()
                request.extend(left)
            if not request:
                self._requests.remove(request)

    def ask(self, jobs: Sequence[Job]) -> list[Future[Any]]:
        """A future answer for each job; all are admitted, or none."""
        with self._changed:
            refused = self.full(len(jobs))
            if refused is not None:
                raise refused
            request = deque(_Pending(job) for job in jobs)
            futures = [pending.done for pending in request]
            self._requests.append(request)
            self._changed.notify(len(futures))
        return futures

    def close(self) -> None:
        """Admit nothing more, answer what waits, end the workers."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.join()

    def _serve(self) -> None:
        while batch := self._take():
            began = time.perf_counter()
            if self._watch is not None:
                self._watch(began - batch[0].since, len(batch))
            try:
                answers = self._work([pending.job for pending in batch])
                for pending, answer in zip(batch, answers, strict=True):
                    pending.done.set_result(answer)
            except BaseException as error:
                for pending in batch:
                    if not pending.done.done():
                        pending.done.set_exception(error)
            spent = (time.perf_counter() - began) / len(batch)
            with self._changed:
                self._running -= len(batch)
                self._seconds += _MEMORY * (spent - self._seconds)

    def _take(self) -> list[_Pending[Job]]:
        """The next batch of jobs that are not cancelled; empty when the queue has closed and all is done."""
        with self._changed:
            while True:
                batch: list[_Pending[Job]] = []
                while self._requests and len(batch) < self._batch:
                    request = self._requests.popleft()
                    pending = request.popleft()
                    if request:
                        self._requests.append(request)
                    if pending.done.set_running_or_notify_cancel():
                        batch.append(pending)
                if batch:
                    self._running += len(batch)
                    return batch
                if self._closing:
                    return []
                self._changed.wait()
