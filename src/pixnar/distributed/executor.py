"""Executors: run pure functions over many jobs, here one after the other or on a cluster side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from pixnar.base.progress import Progress


class Executor(Protocol):
    """Runs jobs; a job may be run again after its worker died, so it must be a function of its arguments alone."""

    workers: int

    def share(self, value: Any) -> Any:
        """A handle of a large value that many jobs need; pass it to each of them as an argument of its own."""
        ...

    def run(
        self, stage: str, task: Callable[..., Any], jobs: Sequence[tuple[Any, ...]], progress: Progress | None = None
    ) -> Iterator[Any]:
        """The results of ``task(*job)`` for all jobs, in their order; the first job that failed raises."""
        ...


class LocalExecutor:
    """An executor that runs jobs in this process, without Ray.

    >>> list(LocalExecutor().run("adding", lambda a, b: a + b, [(1, 2), (3, 4)]))
    [3, 7]
    """

    workers = 1

    def share(self, value: Any) -> Any:
        """The value itself."""
        return value

    def run(
        self, stage: str, task: Callable[..., Any], jobs: Sequence[tuple[Any, ...]], progress: Progress | None = None
    ) -> Iterator[Any]:
        """One job after the other."""
        for done, job in enumerate(jobs, 1):
            yield task(*job)
            if progress:
                progress(stage, done, len(jobs))
