"""Queries that are asked again need not be encoded again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pixnar.runtime.protocol import TextEncoder
from pixnar.runtime.query_encoder import QueryEncoder, Timings

Floats = NDArray[np.float32]


class CachedEncoder:
    """An encoder that remembers the vectors of the `size` texts asked for last. Safe for many threads."""

    def __init__(self, encoder: TextEncoder, size: int) -> None:
        self.encoder, self.size = encoder, size
        self._known: OrderedDict[str, tuple[Floats, Floats]] = OrderedDict()
        self._lock = threading.Lock()

    def query_vectors(self, texts: Sequence[str], batch: int = 64) -> tuple[Floats, Floats]:
        """X [Q, s + 1, d] and the pooled vectors [Q, d] of normalised texts."""
        x, pooled, _ = self.timed(texts, batch)
        return x, pooled

    def timed(self, texts: Sequence[str], batch: int = 64) -> tuple[Floats, Floats, Timings]:
        """`query_vectors`, and how long its two steps took for the texts that were not known."""
        spent = Timings(0.0, 0.0)
        with self._lock:
            found = {text: self._known[text] for text in texts if text in self._known}
            for text in texts:
                if text in found:
                    self._known.move_to_end(text)
        new = [text for text in dict.fromkeys(texts) if text not in found]
        if new or not texts:
            if isinstance(self.encoder, QueryEncoder):
                x, pooled, spent = self.encoder.timed(new, batch)
            else:
                x, pooled = self.encoder.query_vectors(new, batch)
            if not texts:
                return x, pooled, spent
            found |= {text: (x[i].copy(), pooled[i].copy()) for i, text in enumerate(new)}
            with self._lock:
                for text in new:
                    self._known[text] = found[text]
                while len(self._known) > self.size:
                    self._known.popitem(last=False)
        x, pooled = (np.stack([found[text][part] for text in texts]) for part in (0, 1))
        return x, pooled, spent
