"""Latency of single queries, asked one at a time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

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
