"""Executors: pure functions over many jobs, here or on a Ray cluster, and the files between the jobs."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import MissingExtraError, PixnarError
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


RETRIES = 20
"""How often a job is given to another worker after its own died."""
_PATIENCE = 10.0  # seconds until a cluster must have answered


@contextlib.contextmanager
def connected(workers: int | None = None, address: str | None = None) -> Iterator[RayExecutor]:
    """Connect to the cluster at `address`, or start one of `workers` on this machine, for as long as the block runs.

    ``with connected(2) as executor: list(executor.run("squaring", pow, [(2, 2), (3, 2)]))``

    Where the process is connected already, that connection is used and left as it is. `workers` is then, as with an
    `address`, the most jobs at a time (default: all processors of the cluster; on this machine, all cores).
    """
    if workers is not None and workers < 1:
        raise PixnarError(f"{workers} workers can do nothing: ask for 1 or more")
    # Ray says so much at its start that what matters would be lost in it; it tells nobody else either.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # workers are to have as much of a machine as a plain build has
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("working with Ray", "scale") from error
    own = not ray.is_initialized()
    if own:
        quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        try:
            if address is not None:
                _knock(address)
                ray.init(address=address, **quiet)
            else:
                ray.init(num_cpus=workers or os.cpu_count() or 1, include_dashboard=False, address="local", **quiet)
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            said = getattr(error, "strerror", None) or str(error)
            why = (said.splitlines() or [type(error).__name__])[0].rstrip(".")
            where = f"to Ray at {address}" if address is not None else "a Ray of this machine"
            raise PixnarError(f"cannot connect {where} ({why}): see that it runs, or work without --ray") from error
    try:
        if workers is None:
            resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
            workers = max(int(resources.get("CPU", 1)), 1)
        yield RayExecutor(workers, ours=own and address is None)
    finally:
        if own:
            ray.shutdown()


def _knock(address: str) -> None:
    """See that somebody is there: Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()


class RayExecutor:
    """Runs jobs on the workers of the cluster that this process is connected to.

    One that is `ours` ends with us, and its workers with it. Elsewhere jobs that nobody waits for any more are ended
    one by one, by force. Ray itself may crash at this in the middle of a Ctrl-C: it is not done where it need not be.
    """

    def __init__(self, workers: int, *, ours: bool = False) -> None:
        import ray

        self.workers = workers
        self._ours = ours
        self._ray = ray
        self._remote: Any = ray.remote(num_cpus=1, max_retries=RETRIES)(_guarded)

    def share(self, value: Any) -> Any:
        """The value in the cluster's memory; workers of one machine look at one copy."""
        return self._ray.put(value)

    def run(
        self, stage: str, task: Callable[..., Any], jobs: Sequence[tuple[Any, ...]], progress: Progress | None = None
    ) -> Iterator[Any]:
        """The results of ``task(*job)`` for all jobs, in their order; the first job that failed raises."""
        ray, remote = self._ray, self._remote.options(name=stage)
        given = submitted = finished = 0
        running: dict[Any, int] = {}
        ready: dict[int, Any] = {}
        try:
            while given < len(jobs):
                while submitted < len(jobs) and len(running) < self.workers:
                    running[remote.remote(task, *jobs[submitted])] = submitted
                    submitted += 1
                done, _ = ray.wait(list(running), num_returns=1, timeout=1.0, fetch_local=False)
                for answer in done:
                    ready[running.pop(answer)] = answer
                    finished += 1
                if progress:
                    progress(stage, finished, len(jobs))
                while given in ready:
                    yield self._get(stage, ready.pop(given))
                    given += 1
        finally:
            for answer in () if self._ours else running:
                with contextlib.suppress(Exception):
                    ray.cancel(answer, force=True)

    def _get(self, stage: str, answer: Any) -> Any:
        errors = self._ray.exceptions
        try:
            value = self._ray.get(answer)
        except errors.RayTaskError as error:
            why = (str(error.cause).splitlines() or [""])[0]
            raise PixnarError(f"{stage}: a worker failed with {type(error.cause).__name__}: {why}") from error
        except (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError) as error:
            raise given_up(stage, RETRIES + 1) from error
        except errors.RayError as error:
            why = (str(error).splitlines() or [""])[0]
            raise PixnarError(
                f"{stage}: the cluster lost an answer ({why}): see that it is well, and try again"
            ) from error
        if isinstance(value, PixnarError):
            raise value
        return value


def given_up(stage: str, died: int) -> PixnarError:
    """What to say of a job that no worker lives through."""
    return PixnarError(f"{stage}: {died} workers died over the same job: give them more memory, or use fewer workers")


def _guarded(task: Callable[..., Any], *arguments: Any) -> Any:
    """A job on a worker; what is the input's fault comes back as a value, in one piece and in one line."""
    try:
        return task(*arguments)
    except MissingExtraError as error:
        return PixnarError(str(error))
    except PixnarError as error:
        return error


@contextlib.contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that gets its name when it is whole, however often and by whichever worker it is written."""
    aside = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        with open(aside, "wb") as file:
            yield file
        os.replace(aside, path)
    except OSError as error:
        raise PixnarError(
            f"cannot write {path}: {error.strerror or error}; make room, or name another --scratch"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


def save(path: Path, array: NDArray[Any]) -> None:
    """Write an array."""
    with written(path) as file:
        np.save(file, array)


def load(path: Path, *, mapped: bool = False) -> NDArray[Any]:
    """Read what `save` wrote."""
    try:
        if mapped and path.stat().st_size > 4096:
            return np.load(path, mmap_mode="r")  # type: ignore[no-any-return]
        return np.load(path)  # type: ignore[no-any-return]
    except OSError as error:
        raise PixnarError(
            f"cannot read {path}: {error.strerror or error}; the scratch folder must be one that all workers see"
        ) from error


def remove(folder: Path, pattern: str) -> None:
    """Remove files that no job will read again."""
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):
            path.unlink()
