"""Who reads which split: everything but `evaluate` must leave test alone."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from pixnar.corpus import Corpus


def watched(read: Any, seen: list[tuple[str, bool]]) -> Any:
    """`Corpus.qrels` that notes each split it is asked for, and whether `evaluate` asked."""

    def qrels(corpus: Corpus, split: str, progress: Any = None) -> Any:
        frame: FrameType | None = sys._getframe(1)
        inside = False
        while frame is not None and not inside:
            inside = frame.f_code.co_filename.endswith("evaluation/run.py")
            frame = frame.f_back
        seen.append((split, inside))
        return read(corpus, split, progress)

    return qrels
