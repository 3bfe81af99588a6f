"""Who waits for an answer: a bounded queue, and workers that take whatever waits.

Every worker takes up to `batch` queries at once: one on a CPU, where two workers that encode one text each are as fast
as one batch on two cores, and an answer does not depend on who else asked; more on a GPU. A query that would have to
wait longer than the limit is turned away at once, so those that are let in are answered soon, however many ask.
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

from pixnar.serve.limits import Limits, RefusedError

Job = TypeVar("Job")
_PATIENCE = 2.0  # how many times an unhurried answer's time a query may wait, if no limit was given
_ALWAYS = 2  # requests that may wait for each worker, however slow it is at the moment
_MEMORY = 0.05  # weight of the newest time in the running mean


@dataclass
class _Waiting(Generic[Job]):
    job: Job
    done: Future[Any] = field(default_factory=Future)
    since: float = field(default_factory=time.perf_counter)


class AdmissionQueue(Generic[Job]):
    """`ask` puts jobs in the queue or refuses them all; `work` answers some of them, on a worker's thread.

    Whoever asks for many at once waits for them in turn with the others: of each request one job is taken, then of the
    next.
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
        """`seconds` is what a query takes at first guess; `watch` is told how long the first waited, and how many."""
        self._work, self._limits, self._batch, self._watch = work, limits, max(1, batch), watch
        self._seconds = self._unhurried = seconds
        self._requests: deque[deque[_Waiting[Job]]] = deque()  # a row of jobs for each request
        self._changed = threading.Condition()
        self._running = 0
        self._closing = False
        self._workers = [threading.Thread(target=self._serve, name=f"worker-{i}", daemon=True) for i in range(workers)]
        for worker in self._workers:
            worker.start()

    @property
    def waiting(self) -> int:
        """Queries that nobody works on yet."""
        with self._changed:
            return sum(map(len, self._requests))

    @property
    def running(self) -> int:
        """Queries that are worked on."""
        return self._running

    def calibrate(self, seconds: float) -> None:
        """How long a query takes when nobody else asks: another index takes another time."""
        with self._changed:
            self._seconds = self._unhurried = seconds

    def expected_wait(self) -> float:
        """Seconds until a worker would take the first query of a request that came now."""
        ahead = len(self._requests) + max(0, self._running - len(self._workers) + 1)
        return ahead * self._seconds / len(self._workers)

    def full(self, jobs: int = 1) -> RefusedError | None:
        """Why so many more are not taken in now; None if there is room."""
        with self._changed:
            if self._closing:
                return RefusedError(503, "the server is shutting down: ask again, or another server", 1)
            if self._room(jobs):
                return None
            self._forget()
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
        limit = self._limits.wait_seconds or _PATIENCE * self._unhurried
        return len(self._requests) < _ALWAYS * len(self._workers) or self.expected_wait() <= limit

    def _forget(self) -> None:
        """Leave out those who have given up."""
        for row in list(self._requests):
            left = [one for one in row if not one.done.cancelled()]
            if len(left) < len(row):
                row.clear()
                row.extend(left)
            if not row:
                self._requests.remove(row)

    def ask(self, jobs: Sequence[Job]) -> list[Future[Any]]:
        """A future answer for each job; all are taken in, or none."""
        with self._changed:
            refused = self.full(len(jobs))
            if refused is not None:
                raise refused
            taken = [_Waiting(job) for job in jobs]
            self._requests.append(deque(taken))
            self._changed.notify(len(taken))
        return [one.done for one in taken]

    def close(self) -> None:
        """Take nothing more in, answer what waits, end the workers."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.join()

    def _serve(self) -> None:
        while some := self._take():
            began = time.perf_counter()
            if self._watch is not None:
                self._watch(began - some[0].since, len(some))
            try:
                answers = self._work([one.job for one in some])
                for one, answer in zip(some, answers, strict=True):
                    one.done.set_result(answer)
            except BaseException as error:
                for one in some:
                    if not one.done.done():
                        one.done.set_exception(error)
            spent = (time.perf_counter() - began) / len(some)
            with self._changed:
                self._running -= len(some)
                self._seconds += _MEMORY * (spent - self._seconds)

    def _take(self) -> list[_Waiting[Job]]:
        """The next jobs whose askers have not given up; none when the queue has closed and all is done."""
        with self._changed:
            while True:
                some: list[_Waiting[Job]] = []
                while self._requests and len(some) < self._batch:
                    row = self._requests.popleft()
                    one = row.popleft()
                    if row:
                        self._requests.append(row)
                    if one.done.set_running_or_notify_cancel():
                        some.append(one)
                if some:
                    self._running += len(some)
                    return some
                if self._closing:
                    return []
                self._changed.wait()
