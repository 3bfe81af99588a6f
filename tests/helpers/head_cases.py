"""Random heads, and the slow twins of what the kernels compute."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pixnar.runtime import HeadRows
from pixnar.runtime.formats import Format

Floats = NDArray[np.float32]
Ids = NDArray[np.uint32]


def random_rows(count: int, dim: int, seed: int) -> Floats:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(count, dim)) * random.choice([0, 1e-3, 1, 30], size=(count, 1), p=[0.1, 0.2, 0.5, 0.2])
    return np.asarray(rows, np.float32)


def head(count: int, dim: int, format: Format, seed: int, *, bias: bool, places: bool) -> HeadRows:
    random = np.random.default_rng(seed)
    biases = random.normal(size=count).astype(np.float32) if bias else None
    return HeadRows.build(
        random_rows(count, dim, seed + 1), biases, format, random.permutation(count) if places else None
    )


def quantised(vectors: Floats, most: int = 127) -> tuple[NDArray[np.int32], Floats]:
    scales = np.abs(vectors).max(1, initial=0) / np.float32(most)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = np.clip(np.rint(vectors / scales[:, None]), -most, most)
    return np.where(scales[:, None] > 0, whole, 0).astype(np.int32), scales


def slow_logits(rows: Floats, bias: Floats | None, format: Format, x: Floats, ids: Ids) -> Floats:
    """Logits [slots, tokens] of whole-number formats, bit for bit, from the floats that the head was built of."""
    whole, scales = quantised(rows[ids], 127 if format == "int8" else 7)
    vectors, slot_scales = quantised(x)
    dots = vectors @ whole.T
    logits = dots.astype(np.float32) * (scales[None] * slot_scales[:, None])
    return logits if bias is None else logits + bias[ids]


def slow_top(logits: Floats, ids: Ids, n: int) -> Ids:
    best = sorted({(-logit, int(token)) for logit, token in zip(logits.tolist(), ids, strict=True)})
    return np.array([token for _, token in best[:n]], np.uint32)
