"""Weighted postings: for every term the units it stands in and how much it counts there; the same after changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pixnar.base.errors import FileFormatError
from pixnar.base.storage import read_container, write_container

Floats = NDArray[np.float32]
Weight = Callable[[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]], ArrayLike]
"""Terms, units and counts of all postings, each pair once and sorted by term and unit, to their weights."""

_FILE_KIND, _FILE_VERSION = "postings", 1
_MOST_UNITS = 2**32 - 1


class Whole(NamedTuple):
    """How many units a collection had when it was built, and in how many of them each term stood."""

    n_units: int
    found_in: NDArray[np.int64]

    def idf(self, terms: NDArray[np.int64]) -> NDArray[np.float64]:
        """The inverse document frequency of terms; those it does not know stood nowhere."""
        found_in = np.zeros(len(terms), np.int64)
        known = terms < len(self.found_in)
        found_in[known] = np.clip(self.found_in[terms[known]], 0, self.n_units)  # a damaged file may say anything
        out: NDArray[np.float64] = np.log1p((self.n_units - found_in + 0.5) / (found_in + 0.5))
        return out


class Postings:
    """Lists of (unit, weight), one list per term, units ascending and distinct within a list.

    >>> postings = Postings.from_counts([0, 0, 1], [0, 2, 2], [1, 2, 5], n_terms=2, n_units=3)
    >>> postings.score([0, 1], [1.0, 10.0]).tolist()
    [1.0, 0.0, 52.0]
    """

    def __init__(
        self,
        offsets: NDArray[np.int64],
        units: NDArray[np.uint32],
        weights: Floats,
        n_units: int,
        *,
        verify: bool = True,
        where: str = "",
    ) -> None:
        """Over arrays that are not copied; without `verify` only their ends are looked at. `where` names a file."""
        self.offsets, self.units, self.weights, self.n_units = offsets, units, weights, n_units
        self.where = where
        problem = _misfit(offsets, units, weights)
        if not problem and verify and np.any(offsets[1:] < offsets[:-1]):
            problem = "offsets go down"
        if problem:
            raise ValueError(problem)

    @classmethod
    def from_counts(
        cls,
        terms: ArrayLike,
        units: ArrayLike,
        counts: ArrayLike | None = None,
        n_terms: int | None = None,
        n_units: int | None = None,
        weight: Weight | None = None,
    ) -> Postings:
        """From rows (term, unit, count) in any order; counts of equal pairs add up, and are 1 where not given.

        `weight` turns merged counts into weights, see `Weight`; without it the counts are the weights.
        """
        all_terms, all_units = np.asarray(terms, np.int64), np.asarray(units, np.int64)
        if all_terms.shape != all_units.shape or all_terms.ndim != 1:
            raise ValueError(f"{all_terms.shape} terms for {all_units.shape} units: give one of each per row")
        n_terms = _fitting(all_terms, n_terms, "term")
        n_units = _fitting(all_units, n_units, "unit")
        keys = all_terms * n_units + all_units
        merged_terms, merged_units, merged_counts = _merged(keys, counts, n_units)
        offsets = np.zeros(n_terms + 1, np.int64)
        np.cumsum(np.bincount(merged_terms, minlength=n_terms), out=offsets[1:])
        weights = merged_counts if weight is None else weight(merged_terms, merged_units, merged_counts)
        return cls(offsets, merged_units.astype(np.uint32), np.asarray(weights, np.float32), n_units)

    @property
    def n_terms(self) -> int:
        """How many terms there are, those without any unit included."""
        return len(self.offsets) - 1

    @property
    def frequency(self) -> NDArray[np.int64]:
        """In how many units each term stands."""
        return np.diff(self.offsets)

    @property
    def whole(self) -> Whole:
        """What the rarity of terms is known by."""
        return Whole(self.n_units, self.frequency)

    def of(self, term: int) -> tuple[NDArray[np.uint32], Floats]:
        """The units and weights of one term."""
        if not 0 <= term < self.n_terms:
            raise IndexError(f"term {term} is not in 0 … {self.n_terms - 1}")
        begin, end = self.offsets[term], self.offsets[term + 1]
        return self.units[begin:end], self.weights[begin:end]

    def score(self, terms: Sequence[int] | NDArray[Any], term_weights: ArrayLike | None = None) -> Floats:
        """Per unit the sum over `terms` of the term's weight (1 where not given) times its weight in the unit."""
        out = np.zeros(self.n_units, np.float32)
        for term, factor in _weighted(terms, term_weights):
            units, weights = self.of(term)
            try:
                np.add.at(out, units, weights if factor == 1 else factor * weights)  # 3 x as fast as out[units] += …
            except IndexError as error:
                raise damaged(self.where, f"term {term} is in units from {self.n_units} on") from error
        return out

    def part(self, units: NDArray[np.int64]) -> Postings:
        """The same of some units, given ascending, which are 0, 1, 2 … there; every term keeps its list."""
        renumbered = np.full(self.n_units, -1, np.int64)
        renumbered[units] = np.arange(len(units))
        found = renumbered[self.units]
        kept = found >= 0
        offsets = np.concatenate([[0], np.cumsum(kept, dtype=np.int64)])[self.offsets]
        return Postings(offsets, found[kept].astype(np.uint32), self.weights[kept], len(units))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays a container file holds; `from_arrays` is the way back."""
        return {"offsets": self.offsets, "units": self.units, "weights": self.weights}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], n_units: int, *, verify: bool = True, where: str = ""
    ) -> Postings:
        """Postings over arrays that `arrays` gave, not copied; `verify` reads all lists to see that they are sound."""
        missing = {"offsets", "units", "weights"} - arrays.keys()
        if missing:
            raise ValueError(f"array {min(missing)} is missing")
        parts = (arrays["offsets"], arrays["units"], arrays["weights"])
        postings = cls(*parts, n_units, verify=verify, where=where)
        problem = _disorder(postings) if verify else ""
        if problem:
            raise ValueError(problem)
        return postings

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one file, atomically."""
        write_container(path, _FILE_KIND, _FILE_VERSION, {"n_units": self.n_units}, self.arrays())

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, verify: bool = True) -> Postings:
        """Map a file that `save` wrote; `verify` reads all of it to find damage."""
        container = read_container(path, _FILE_KIND, _FILE_VERSION, verify=verify)
        try:
            n_units = int(container.meta["n_units"])
            return cls.from_arrays(container.arrays, n_units, verify=verify, where=os.fspath(path))
        except (KeyError, ValueError, TypeError) as error:
            raise FileFormatError(f"{path} holds no usable postings ({error}): build them again") from error


def damaged(where: str, why: str) -> FileFormatError:
    """What to raise when arrays that were mapped without a look say what they cannot."""
    return FileFormatError(f"{where or 'an array in memory'} is damaged ({why}): copy or build the index again")


def _fitting(values: NDArray[np.int64], size: int | None, name: str) -> int:
    least = int(values.max()) + 1 if values.size else 0
    size = least if size is None else size
    if values.size and values.min() < 0:
        raise ValueError(f"{name} {values.min()} is negative")
    if not least <= size <= _MOST_UNITS:
        raise ValueError(f"{name} {least - 1} does not fit into {size} {name}s (at most {_MOST_UNITS})")
    return size


def _merged(
    keys: NDArray[np.int64], counts: ArrayLike | None, n_units: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Each pair of term and unit once, sorted, with the sum of its counts."""
    values = np.ones(len(keys)) if counts is None else np.asarray(counts, np.float64)
    if values.shape != keys.shape:
        raise ValueError(f"{len(values)} counts for {len(keys)} rows")
    if np.any(keys[1:] <= keys[:-1]):
        order = np.argsort(keys, kind="stable")
        keys, values = keys[order], values[order]
        firsts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        keys, values = keys[firsts], np.add.reduceat(values, firsts)
    return keys // max(n_units, 1), keys % max(n_units, 1), values


def _weighted(terms: Sequence[int] | NDArray[Any], weights: ArrayLike | None) -> list[tuple[int, np.float32]]:
    listed = [int(term) for term in terms]
    factors = np.ones(len(listed), np.float32) if weights is None else np.asarray(weights, np.float32)
    return list(zip(listed, factors, strict=True))


def _misfit(offsets: NDArray[Any], units: NDArray[Any], weights: NDArray[Any]) -> str:
    """What is wrong with the arrays, or nothing, without reading the lists."""
    if offsets.dtype != np.int64 or units.dtype != np.uint32 or weights.dtype != np.float32:
        return f"offsets, units and weights are {offsets.dtype}, {units.dtype} and {weights.dtype}"
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(units) or len(units) != len(weights):
        return f"offsets, {len(units)} units and {len(weights)} weights do not fit together"
    return ""


def _disorder(postings: Postings) -> str:
    """What is wrong with the lists themselves, or nothing; reads all of them."""
    units, borders = postings.units, postings.offsets[1:-1]
    if len(units) and units.max() >= postings.n_units:
        return f"unit {units.max()} is not below {postings.n_units}"
    steps = units[1:] > units[:-1]
    steps[borders[(borders > 0) & (borders < len(units))] - 1] = True  # from one list to the next
    return "" if steps.all() else "units do not ascend within a list"


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


def best(scores: NDArray[np.floating], k: int) -> NDArray[np.int64]:
    """Where the `k` highest scores are, best first; among equals the lower index wins.

    >>> best(np.array([0.5, 2.0, 0.5, 2.0, 0.5]), 3).tolist()
    [1, 3, 0]
    """
    if k <= 0:
        return np.zeros(0, np.int64)
    if k < len(scores):
        last = np.partition(scores, len(scores) - k)[len(scores) - k]
        above, equal = np.flatnonzero(scores > last), np.flatnonzero(scores == last)
        chosen = np.concatenate([above, equal[: k - len(above)]])
    else:
        chosen = np.arange(len(scores))
    order = np.lexsort((chosen, -scores[chosen]))
    return chosen[order].astype(np.int64, copy=False)
