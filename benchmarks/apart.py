"""Work in a fresh process: its peak memory is its own, and nothing is warm."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any, TypeVar

Answer = TypeVar("Answer")


def apart(work: Callable[..., Answer], *given: Any) -> Answer:
    """The answer of some work in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, given)
