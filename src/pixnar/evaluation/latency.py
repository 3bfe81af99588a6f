"""Latency of single queries, and the environment of a measurement: machine, versions, date and command."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pixnar.base.errors import PixnarError
from pixnar.base.progress import Progress
from pixnar.search import Retriever

WARM_UP = 20  # queries before the clock runs: files are mapped, caches filled


class Latency(NamedTuple):
    """Milliseconds a query, over so many queries."""

    mean: float
    p50: float
    p99: float
    queries: int


def latency(
    retriever: Retriever,
    texts: Sequence[str],
    k: int = 10,
    *,
    repeats: int = 2,
    warm_up: int = WARM_UP,
    progress: Progress | None = None,
) -> Latency:
    """Ask one query after the other, each `repeats` times, and take its best time.

    The best, because other work of the machine only ever adds; what it hides are pauses of our own, such as collecting
    garbage.
    """
    return latencies({"": retriever}, texts, k, repeats=repeats, warm_up=warm_up, progress=progress)[""]


def latencies(
    retrievers: Mapping[str, Retriever],
    texts: Sequence[str],
    k: int = 10,
    *,
    repeats: int = 2,
    warm_up: int = WARM_UP,
    progress: Progress | None = None,
) -> dict[str, Latency]:
    """The same for several side by side: each query goes to all of them in turn before the next query.

    So a busy machine is busy for all of them, and what they take can be compared.
    """
    if not texts:
        raise PixnarError("there are no queries to time")
    for retriever in retrievers.values():
        for text in texts[:warm_up]:
            retriever.search(text, k)
    best = np.full((len(retrievers), len(texts)), np.inf)
    for turn in range(repeats):
        for j, text in enumerate(texts):
            for i, retriever in enumerate(retrievers.values()):
                began = time.perf_counter()
                retriever.search(text, k)
                best[i, j] = min(best[i, j], (time.perf_counter() - began) * 1e3)
            if progress:
                progress("timing queries", turn * len(texts) + j + 1, repeats * len(texts))
    return {
        name: Latency(float(one.mean()), float(np.percentile(one, 50)), float(np.percentile(one, 99)), len(one))
        for name, one in zip(retrievers, best, strict=True)
    }


def environment(*libraries: str) -> dict[str, Any]:
    """The machine, the versions, the commit, the date and the command."""
    return {
        "cpu": _fact("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(int((_fact("/proc/meminfo", "MemTotal") or "0").split()[0]) * 1024 / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": {name: _version(name) for name in libraries},
        "commit": _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def resident_mb() -> float:
    """Memory of this process in megabytes; of mapped files what was touched."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _fact(path: str, key: str) -> str | None:
    if not Path(path).is_file():
        return None
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return None


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str:
    here = Path(__file__).resolve()
    git = ["git", "-C", str(here.parent)]
    try:  # an installed package may lie in the repository of somebody else
        subprocess.run([*git, "ls-files", "--error-unmatch", here.name], capture_output=True, check=True)
        result = subprocess.run(
            [*git, "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True, check=True
        )
        return result.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
