"""Postings after changes: units that gained or lost texts are counted anew, all statistics stay those of the build."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pixnar.fusion.postings import Floats, Postings, damaged

Ints = NDArray[np.int64]

_SATURATED = 1e9  # a count whose weight is the highest there is, to the last bit


class Changed(NamedTuple):
    """Units that gained or lost texts after the build.

    `gained` and `lost` number the units among the changed ones: first those of the build, then the new ones.
    """

    units: Ints  # of the build, ascending
    cleared: NDArray[np.bool_]  # by unit of the build: nothing it had then counts any more
    new: int  # units added behind those of the build
    gained: list[tuple[int, str]]
    lost: list[tuple[int, str]]
    lost_names: list[int]  # of the lost docids, by `name_of` their tokens

    @property
    def size(self) -> int:
        """How many units changed."""
        return len(self.units) + self.new

    def places(self, n_units: int) -> Ints:
        """The changed units among all, of which the build had `n_units`."""
        return np.concatenate([self.units, np.arange(n_units, n_units + self.new)])


class Rows(NamedTuple):
    """Terms, the units they stand in, and how often."""

    terms: Ints
    units: Ints
    counts: Ints

    @classmethod
    def joined(cls, parts: list[Rows]) -> Rows:
        """One after the other."""
        nothing = np.zeros(0, np.int64)
        return cls(*(np.concatenate([nothing, *(part[i] for part in parts)]) for i in range(3)))


class Lengths(NamedTuple):
    """The lengths of units in words, and BM25's constants: how much a length damps the weight of a term."""

    values: NDArray[np.uint32]
    mean: float  # of the whole collection when it was built
    k1: float
    b: float

    def damping(self, values: ArrayLike) -> NDArray[np.float64]:
        """Of units with such lengths."""
        out: NDArray[np.float64] = self.k1 * (1 - self.b + self.b * np.asarray(values) / self.mean)
        return out

    def part(self, units: Ints) -> Lengths:
        """The same of some units."""
        return self._replace(values=self.values[units])

    @property
    def meta(self) -> dict[str, float]:
        """What a container file notes beside `values`."""
        return {"mean": self.mean, "k1": self.k1, "b": self.b}


class Recounted:
    """Scores by postings in which some units were counted anew, and others were added.

    The weight of a term is top · count / (count + damping), where `top` depends on the term alone. Weights are kept,
    counts are not; they follow from the weights. So a unit scores, to the bit, what it would if it had been built from
    its texts as they are now, with the statistics of the build.
    """

    def __init__(
        self,
        base: Postings,
        changed: Changed,
        rows: Rows,
        longer: Ints,
        lengths: Lengths,
        top: Callable[[Ints], ArrayLike],
    ) -> None:
        """`rows` and `longer` are what each changed unit gained, below 0 what it lost: counts of terms, and words."""
        kept = np.flatnonzero(~changed.cleared)
        words = np.zeros(changed.size, np.int64)
        words[kept] = lengths.values[changed.units[kept]]
        damping = lengths.damping(np.maximum(words + longer, 0))
        every = Rows.joined([_built(base, changed.units, kept, lengths, top), rows])

        def weight(terms: Ints, units: Ints, counts: NDArray[np.float64]) -> NDArray[np.float64]:
            counts = np.maximum(counts, 0)
            out: NDArray[np.float64] = np.asarray(top(self._terms[terms])) * counts / (counts + damping[units])
            return out

        self._terms, local = np.unique(every.terms, return_inverse=True)
        self._postings = Postings.from_counts(local, every.units, every.counts, len(self._terms), changed.size, weight)
        self._base = base
        self.n_units = base.n_units + changed.new
        self._places = changed.places(base.n_units)

    def score(self, terms: ArrayLike, weights: ArrayLike | None = None) -> Floats:
        """Per unit the sum over `terms` of the term's weight (1 where not given) times its weight in the unit."""
        listed = np.asarray(terms, np.int64)
        factors = np.ones(len(listed), np.float32) if weights is None else np.asarray(weights, np.float32)
        built = listed < self._base.n_terms
        out = np.zeros(self.n_units, np.float32)
        out[: self._base.n_units] = self._base.score(listed[built], factors[built])
        at = np.searchsorted(self._terms, listed)
        there = at < len(self._terms)
        there[there] = self._terms[at[there]] == listed[there]
        out[self._places] = self._postings.score(at[there], factors[there])
        return out


def _built(base: Postings, units: Ints, kept: Ints, lengths: Lengths, top: Callable[[Ints], ArrayLike]) -> Rows:
    """What was counted at the build in those of `units` that are `kept`; reads all postings once."""
    if not len(kept):
        return Rows.joined([])
    wanted = np.zeros(base.n_units, np.bool_)
    wanted[units[kept]] = True
    try:
        places = np.flatnonzero(wanted[base.units])
    except IndexError as error:
        raise damaged(base.where, f"a unit is not below {base.n_units}") from error
    terms = np.searchsorted(base.offsets, places, side="right") - 1
    weights, damping = base.weights[places].astype(np.float64), lengths.damping(lengths.values[base.units[places]])
    left = np.asarray(top(terms)) - weights
    counts = np.full(len(places), _SATURATED)
    np.divide(weights * damping, left, out=counts, where=left > 0)
    counts = np.clip(np.rint(counts), 1, _SATURATED)
    return Rows(terms, np.searchsorted(units, base.units[places]), counts.astype(np.int64))
