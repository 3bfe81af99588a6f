"""What an index asks of whatever encodes its queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class TextEncoder(Protocol):
    """`QueryEncoder` (onnxruntime) and `Nar` (torch) are such."""

    def query_vectors(self, texts: Sequence[str], batch: int = 64) -> tuple[Floats, Floats]:
        """X [Q, s + 1, d] and the pooled vectors [Q, d] of normalised texts."""
