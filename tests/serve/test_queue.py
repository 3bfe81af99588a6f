"""The queue: what is taken in is answered, what would wait too long is not taken in."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from pixnar.serve.queue import AdmissionQueue, Limits, RefusedError

PATIENCE = 10.0


class Work:
    """Doubles numbers, but only while its gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[list[int]] = []
        self.begun = threading.Semaphore(0)

    def __call__(self, jobs: Sequence[int]) -> Sequence[Any]:
        self.batches.append(list(jobs))
        self.begun.release()
        assert self.gate.wait(PATIENCE)
        if 13 in jobs:
            raise ZeroDivisionError("13")
        return [2 * job for job in jobs]


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def make(work: Work) -> Iterator[Callable[..., AdmissionQueue[int]]]:
    queues: list[AdmissionQueue[int]] = []

    def make_queue(limits: Limits | None = None, **options: Any) -> AdmissionQueue[int]:
        queues.append(AdmissionQueue(work, limits or Limits(waiting=1000, wait_seconds=PATIENCE), **options))
        return queues[-1]

    yield make_queue
    work.gate.set()
    for queue in queues:
        queue.close()


def test_every_job_gets_its_own_answer(make: Callable[..., AdmissionQueue[int]], work: Work) -> None:
    queue = make(workers=3, batch=2)
    futures = [queue.ask([i, i + 1]) for i in range(14, 300)]
    assert [[one.result(PATIENCE) for one in two] for two in futures] == [[2 * i, 2 * i + 2] for i in range(14, 300)]
    assert max(map(len, work.batches)) <= 2


def test_who_waits_is_taken_together(make: Callable[..., AdmissionQueue[int]], work: Work) -> None:
    queue = make(workers=1, batch=4)
    work.gate.clear()
    first = queue.ask([1])
    assert work.begun.acquire(timeout=PATIENCE)
    rest = [queue.ask([i])[0] for i in range(2, 8)]
    assert (queue.waiting, queue.running) == (6, 1)
    work.gate.set()
    assert [one.result(PATIENCE) for one in [*first, *rest]] == [2, 4, 6, 8, 10, 12, 14]
    assert work.batches == [[1], [2, 3, 4, 5], [6, 7]]


def test_a_full_queue_takes_nothing_in(make: Callable[..., AdmissionQueue[int]], work: Work) -> None:
    queue = make(Limits(waiting=3, wait_seconds=PATIENCE), workers=1)
    work.gate.clear()
    taken = queue.ask([1])
    assert work.begun.acquire(timeout=PATIENCE)
    taken += queue.ask([2]) + queue.ask([3]) + queue.ask([4])
    with pytest.raises(RefusedError) as refused:
        queue.ask([5])
    assert refused.value.status == 429
    assert refused.value.retry_after is not None
    assert "3 queries wait" in refused.value.line
    work.gate.set()
    assert [one.result(PATIENCE) for one in taken] == [2, 4, 6, 8]
    assert queue.ask([6])[0].result(PATIENCE) == 12


def test_a_wait_that_would_be_too_long(make: Callable[..., AdmissionQueue[int]], work: Work) -> None:
    queue = make(Limits(wait_seconds=2.0), workers=2, seconds=1.0)
    work.gate.clear()
    for i in range(2):
        queue.ask([i])
        assert work.begun.acquire(timeout=PATIENCE)
    for i in range(2, 6):  # two are worked on, and four may wait: the next would wait for more than two seconds
        queue.ask([i])
    assert queue.expected_wait() > 2.0
    with pytest.raises(RefusedError, match="4 queries wait already"):
        queue.ask([6])


def test_who_gives_up_is_not_worked_for(make: Callable[..., AdmissionQueue[int]], work: Work) -> None:
    queue = make(workers=1)
    work.gate.clear()
    first = queue.ask([1])
    assert work.begun.acquire(timeout=PATIENCE)
    second, third = queue.ask([2]), queue.ask([3])
    assert second[0].cancel()
    work.gate.set()
    assert (first[0].result(PATIENCE), third[0].result(PATIENCE)) == (2, 6)
    assert work.batches == [[1], [3]]


def test_who_gave_up_takes_no_room(make: Callable[..., AdmissionQueue[int]], work: Work) -> None:
    queue = make(Limits(waiting=3, wait_seconds=PATIENCE), workers=1)
    work.gate.clear()
    queue.ask([1])
    assert work.begun.acquire(timeout=PATIENCE)
    tired = queue.ask([2, 3, 4])
    with pytest.raises(RefusedError):
        queue.ask([5])
    assert tired[0].cancel()
    assert tired[2].cancel()
    assert queue.ask([5])
    assert queue.waiting == 2


def test_of_each_request_one_job_in_turn(make: Callable[..., AdmissionQueue[int]], work: Work) -> None:
    queue = make(workers=1)
    work.gate.clear()
    queue.ask([1])
    assert work.begun.acquire(timeout=PATIENCE)
    futures = queue.ask([20, 21, 22, 23]) + queue.ask([30]) + queue.ask([40, 41])
    work.gate.set()
    assert [one.result(PATIENCE) for one in futures] == [40, 42, 44, 46, 60, 80, 82]
    assert work.batches == [[1], [20], [30], [40], [21], [41], [22], [23]]


def test_more_at_once_than_may_wait(make: Callable[..., AdmissionQueue[int]], work: Work) -> None:
    queue = make(Limits(waiting=3, wait_seconds=PATIENCE), workers=1)
    work.gate.clear()
    queue.ask([1])
    assert work.begun.acquire(timeout=PATIENCE)
    queue.ask([2])
    with pytest.raises(RefusedError):
        queue.ask([3, 4, 5])
    assert queue.ask([3, 4])


def test_a_failure_is_of_its_own_batch(make: Callable[..., AdmissionQueue[int]]) -> None:
    queue = make(workers=1)
    bad, good = queue.ask([13]), queue.ask([14])
    with pytest.raises(ZeroDivisionError):
        bad[0].result(PATIENCE)
    assert good[0].result(PATIENCE) == 28


def test_closing_answers_what_was_taken_in(make: Callable[..., AdmissionQueue[int]], work: Work) -> None:
    queue = make(workers=2)
    work.gate.clear()
    futures = [queue.ask([i])[0] for i in range(20, 60)]
    closing = threading.Thread(target=queue.close)
    closing.start()
    while queue.full() is None:
        time.sleep(0.001)
    with pytest.raises(RefusedError) as refused:
        queue.ask([1])
    assert refused.value.status == 503
    work.gate.set()
    assert [one.result(PATIENCE) for one in futures] == [2 * i for i in range(20, 60)]
    closing.join(PATIENCE)
    assert not closing.is_alive()
