"""Aggregation: a document's score as the maximum, mean or log-sum-exp of its entries' scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError, PixnarError

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

MAX, MEAN, LOGSUMEXP = "max", "mean", "logsumexp"
AUTO = "auto"

_DIGITS = 6  # equal vectors get equal scores, wherever they stand in a product


@dataclass(frozen=True)
class Aggregate:
    """How scores of entries become the score of their document; `scale` is for log Σ exp(scale · s) / scale.

    >>> Aggregate("mean")(np.array([[1, 3, 5]], np.float32), np.array([0, 2])).tolist()
    [[2.0, 5.0]]
    """

    kind: str = MAX
    scale: float = 20.0

    def check(self) -> None:
        """Raise where it is not possible."""
        if self.kind not in (MAX, MEAN, LOGSUMEXP):
            raise PixnarError(f"aggregate {self.kind!r} is not possible: give {AUTO}, {MAX}, {LOGSUMEXP} or {MEAN}")
        if not 0 < self.scale < np.inf:
            raise PixnarError(f"scale {self.scale} is not possible: give a number above 0")

    def __call__(self, scores: Floats, starts: Ints) -> Floats:
        """[queries, documents] from [queries, entries], where those of each document begin at `starts`."""
        sizes = np.diff(starts, append=scores.shape[1])
        if self.kind == MEAN:
            found = (np.add.reduceat(scores, starts, axis=1) / sizes).astype(np.float32)
        else:
            found = np.maximum.reduceat(scores, starts, axis=1)
            if self.kind == LOGSUMEXP:
                scale = np.float32(self.scale)
                sums = np.add.reduceat(np.exp(scale * (scores - np.repeat(found, sizes, axis=1))), starts, axis=1)
                found = found + (np.log(sums) / scale).astype(np.float32)
        rounded: Floats = found.round(_DIGITS)
        return rounded

    def __str__(self) -> str:
        return f"log-sum-exp, scale {self.scale:g}" if self.kind == LOGSUMEXP else self.kind

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold."""
        return {"kind": self.kind, "scale": self.scale}

    @classmethod
    def from_dict(cls, data: Any) -> Aggregate:
        """The way back."""
        try:
            made = cls(str(data["kind"]), float(data["scale"]))
            made.check()
        except (KeyError, TypeError, ValueError, PixnarError) as error:
            raise FileFormatError(f"{data!r} is not an aggregate: copy or build the baseline again") from error
        return made


SCALES = (5.0, 10.0, 20.0, 40.0)


def options(kind: str = AUTO, scale: float = 0.0) -> list[Aggregate]:
    """What the dev split chooses from; without one the first is taken."""
    if scale and kind in (MAX, MEAN):
        raise PixnarError(f"scale is for {LOGSUMEXP}: leave it out with the aggregate {kind}")
    scales = (scale,) if scale else SCALES
    smooth = [Aggregate(LOGSUMEXP, one) for one in scales]
    if kind == LOGSUMEXP:
        return sorted(smooth, key=lambda one: one.scale != Aggregate.scale)  # the default first
    if kind != AUTO:
        Aggregate(kind).check()
        return [Aggregate(kind)]
    return [Aggregate(MAX), Aggregate(MEAN), *smooth]
