"""How long one query takes, asked alone, as a user would ask it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pixnar.errors import PixnarError
from pixnar.progress import Progress
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
    if not texts:
        raise PixnarError("there are no queries to time")
    for text in texts[:warm_up]:
        retriever.search(text, k)
    best = np.full(len(texts), np.inf)
    for turn in range(repeats):
        for i, text in enumerate(texts):
            began = time.perf_counter()
            retriever.search(text, k)
            best[i] = min(best[i], (time.perf_counter() - began) * 1e3)
            if progress:
                progress("timing queries", turn * len(texts) + i + 1, repeats * len(texts))
    return Latency(float(best.mean()), float(np.percentile(best, 50)), float(np.percentile(best, 99)), len(best))
