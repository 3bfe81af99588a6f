"""The sources that score documents beside their docids, and a sum of them whose weights are chosen on dev queries."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pixnar.fusion.lexical import LexicalIndex
from pixnar.fusion.postings import best
from pixnar.fusion.vectors import NO_DOCID, ChangedVectors, DocidVectors

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

DOCIDS, LEXICAL, EXPANSION, DENSE, TEXT = "docids", "lexical", "expansion", "dense", "text"
"""The names of sources; EXPANSION is the lexical index, asked for what the model expects."""

_COARSE = [2.0**i for i in range(-6, 7)]
_FINE = [2.0 ** (i / 2) for i in range(-4, 5)]
_ROUNDS = 4  # of coordinate search, at most
_MARGIN = 0.001  # a source must help by this share to be taken in


class Expanded(NamedTuple):
    """Tokens that a model expects in a good document, and how much likelier it finds each than it is anywhere."""

    tokens: Ints
    gains: Floats


class Top(NamedTuple):
    """The units that a source scores highest, best first, and their scores, all above 0."""

    units: Ints
    scores: Floats


class Sources(NamedTuple):
    """What scores documents beside the scores of their docids; documents are units, see `Numbering`."""

    lexical: LexicalIndex | None
    vectors: DocidVectors | ChangedVectors | None
    text: DocidVectors | ChangedVectors | None

    def whole(
        self, text: str, pooled: Floats, expanded: Expanded | None, depth: int, *, nearest: bool
    ) -> tuple[dict[str, Floats], dict[str, Top]]:
        """Scores of all documents for a query, and the `depth` best of each source; by vectors only if `nearest`."""
        columns = {}
        if self.lexical is not None:
            columns[LEXICAL] = self.lexical.score(text)
            if expanded is not None:
                columns[EXPANSION] = self.lexical.expansion(*expanded)
        for name, vectors in ((DENSE, self.vectors), (TEXT, self.text)):
            if vectors is not None and nearest:
                columns[name] = vectors.every(pooled)
        return columns, {name: _top(column, depth) for name, column in columns.items()}

    def some(self, whole: Mapping[str, Floats], pooled: Floats, units: Ints) -> dict[str, Floats]:
        """Scores of some documents, from those of all where these are there; NaN where vectors say nothing of one."""
        columns = {name: column[units] for name, column in whole.items()}
        for name, vectors in ((DENSE, self.vectors), (TEXT, self.text)):
            if vectors is not None:
                near = columns[name] if name in columns else vectors.best(pooled, units)
                columns[name] = np.where(near == NO_DOCID, np.float32(np.nan), near)
        return columns


def _top(column: Floats, depth: int) -> Top:
    """The units with the largest scores above 0."""
    units = best(column, depth)
    units = units[column[units] > 0]
    return Top(units, column[units])


class ScoreTable(NamedTuple):
    """The documents that came up for one query, each once, and what each source says of them: NaN or −∞ for nothing."""

    documents: NDArray[np.integer]
    columns: Mapping[str, Floats]


@dataclass(frozen=True)
class Fusion:
    """The weights of sources; a source without a weight does not count.

    A column counts `weight` times its values over the source's `scale`, a constant: how far the scores of a query's
    candidates spread on dev. So weights of different sources compare, and a document's score does not hang on which
    others came up (z-scores per query were as good on dev, not better). Documents that a source says nothing about get
    its lowest score for that query.

    >>> fusion = Fusion({"words": 1.0, "dense": 2.0}, {"words": 10.0})
    >>> fusion.scores({"words": np.array([20.0, 10.0]), "dense": np.array([0.5, np.nan])}).tolist()
    [3.0, 2.0]
    """

    weights: dict[str, float]
    scales: dict[str, float] = field(default_factory=dict)

    def scores(self, columns: Mapping[str, ArrayLike]) -> Floats:
        """The fused score of one query's candidates."""
        size = len(np.asarray(next(iter(columns.values()), ())))
        out = np.zeros(size, np.float32)
        for _, added in self.parts(columns).values():
            out += added
        return out

    def best(self, columns: Mapping[str, ArrayLike], k: int) -> tuple[Ints, Floats]:
        """The k best of one query's candidates, best first, and the fused scores of all."""
        scores = self.scores(columns)
        return best(scores, k), scores

    def parts(self, columns: Mapping[str, ArrayLike]) -> dict[str, tuple[Floats, Floats]]:
        """Of each source its values, the lowest where it says nothing, and what they add to the score."""
        missing = self.weights.keys() - columns.keys()
        if missing:
            raise ValueError(f"there is no column {min(missing)!r}: the sources are {', '.join(sorted(self.weights))}")
        told = {}
        for source, weight in self.weights.items():
            column = np.array(columns[source], np.float32, ndmin=2)
            filled = _filled(column, np.ones(column.shape, np.bool_)).reshape(-1)
            told[source] = filled, np.float32(weight) * (filled / np.float32(self.scales.get(source, 1.0)))
        return told

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold; `from_dict` is the way back."""
        return {"weights": dict(self.weights), "scales": dict(self.scales)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Fusion:
        """The fusion that `to_dict` wrote down; other keys are ignored."""
        parts = (data["weights"], data.get("scales", {}))
        return cls(*({str(name): float(value) for name, value in part.items()} for part in parts))


def needed_by(fusion: Fusion | None) -> set[str]:
    """The sources that a fusion cannot do without: LEXICAL also where the lexical index only expands, and vectors."""
    weights = set() if fusion is None else set(fusion.weights)
    return (weights & {DENSE, TEXT}) | ({LEXICAL} if weights & {LEXICAL, EXPANSION} else set())


def choose(
    tables: Sequence[ScoreTable],
    relevant: Sequence[Collection[int]],
    sources: Sequence[str] | None = None,
) -> Fusion:
    """The weights that give the highest MRR@10 on dev queries, among equals the highest recall at 100.

    It starts from the best single source and takes in others, one by one, while they help by more than 0.1 %: so it is
    never worse on these queries than any source alone.
    """
    if not tables or len(tables) != len(relevant):
        raise ValueError(f"{len(tables)} tables for {len(relevant)} sets of relevant documents: give one per query")
    names = list(tables[0].columns if sources is None else sources)
    if not names:
        raise ValueError("there are no sources to choose from")
    dev, scales = _Dev.of(tables, relevant, names)
    weights = _chosen(dev)
    return Fusion(weights, {name: scales[name] for name in weights})


def without_dev(tables: Sequence[ScoreTable], weights: Mapping[str, float]) -> Fusion:
    """Given weights, for a corpus without judged queries: only how far scores spread is measured, on any queries.

    >>> tables = [ScoreTable(np.array([3, 5]), {"words": np.array([4.0, 0.0]), "dense": np.array([0.2, 0.4])})]
    >>> fusion = without_dev(tables, {"words": 1.0, "dense": 0.5})
    >>> fusion.weights, {name: round(scale, 3) for name, scale in fusion.scales.items()}
    ({'words': 1.0, 'dense': 0.5}, {'words': 2.0, 'dense': 0.1})
    """
    scales = _Dev.of(tables, [()] * len(tables), list(weights))[1] if tables else {}
    return Fusion(dict(weights), scales)


@dataclass(frozen=True)
class _Dev:
    """All queries side by side: [queries, candidates] arrays, documents ascending within a query, padded at the end."""

    columns: dict[str, Floats]
    padding: Floats  # 0 for a candidate, −∞ where there is none
    relevant: NDArray[np.bool_]
    n_relevant: Ints

    @classmethod
    def of(
        cls, tables: Sequence[ScoreTable], relevant: Sequence[Collection[int]], names: Sequence[str]
    ) -> tuple[_Dev, dict[str, float]]:
        """Everything scaled to compare, and the scales."""
        shape = len(tables), max(1, *(len(table.documents) for table in tables))
        valid, wanted = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        columns = {name: np.zeros(shape, np.float32) for name in names}
        for i, (table, documents) in enumerate(zip(tables, relevant, strict=True)):
            order = np.argsort(table.documents, kind="stable")
            valid[i, : len(order)] = True
            wanted[i, : len(order)] = np.isin(table.documents[order], list(documents))
            for name in names:
                columns[name][i, : len(order)] = np.asarray(table.columns[name])[order]
        filled = {name: _filled(column, valid) for name, column in columns.items()}
        scales = {name: _spread(column, valid) for name, column in filled.items()}
        scaled = {name: column / np.float32(scales[name]) for name, column in filled.items()}
        n_relevant = np.array([len(set(documents)) for documents in relevant], np.int64)
        return cls(scaled, np.where(valid, np.float32(0), np.float32(-np.inf)), wanted, n_relevant), scales

    @property
    def n_queries(self) -> int:
        return len(self.padding)

    def fused(self, weights: Mapping[str, float]) -> Floats:
        out = self.padding.copy()
        for name, weight in weights.items():
            out += np.float32(weight) * self.columns[name]
        return out

    def mrr(self, scores: Floats, k: int = 10) -> float:
        rows = np.arange(self.n_queries)
        at = np.where(self.relevant, scores, np.float32(-np.inf)).argmax(axis=1)
        top = scores[rows, at]
        ahead = np.count_nonzero(scores > top[:, None], axis=1)
        equal = scores == top[:, None]
        tied = np.flatnonzero(np.count_nonzero(equal, axis=1) > 1)
        ahead[tied] += np.count_nonzero(equal[tied] & (np.arange(scores.shape[1]) < at[tied, None]), axis=1)
        found = self.relevant[rows, at] & (ahead < k)
        return float(np.where(found, 1 / (1 + ahead), 0).mean())

    def recall(self, scores: Floats, k: int = 100) -> float:
        top = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        found = np.count_nonzero(np.take_along_axis(self.relevant, top, axis=1), axis=1)
        return float((found / np.maximum(self.n_relevant, 1)).mean())


def _chosen(dev: _Dev) -> dict[str, float]:
    names = list(dev.columns)
    first = max(names, key=lambda name: (dev.mrr(dev.fused({name: 1.0})), dev.recall(dev.fused({name: 1.0}))))
    weights = {first: 1.0}
    reached = dev.mrr(dev.fused(weights))
    while len(weights) < len(names):
        here = dev.fused(weights)
        options = {name: _best_weight(dev, here, name, _COARSE) for name in names if name not in weights}
        added = max(options, key=lambda name: options[name][1])
        if options[added][1] <= reached * (1 + _MARGIN):
            break
        weights, reached = _refined(dev, weights | {added: options[added][0]}, options[added][1])
    return {name: weight / weights[first] for name, weight in weights.items()}


def _refined(dev: _Dev, weights: dict[str, float], reached: float) -> tuple[dict[str, float], float]:
    """Coordinate search from some weights and the MRR they give, on a finer grid."""
    for _ in range(_ROUNDS):
        before = reached
        for name, weight in list(weights.items()):
            rest = dev.fused({other: value for other, value in weights.items() if other != name})
            moved, figure = _best_weight(dev, rest, name, [weight * step for step in _FINE])
            if figure > reached:
                weights, reached = weights | {name: moved}, figure
        if reached == before:
            break
    return weights, reached


def _best_weight(dev: _Dev, rest: Floats, name: str, grid: Sequence[float]) -> tuple[float, float]:
    """The weight of one more source that gives the highest MRR, and that; the middle one among equals."""
    column = dev.columns[name]
    figures = [dev.mrr(rest + np.float32(weight) * column) for weight in grid]
    tied = [weight for weight, figure in zip(grid, figures, strict=True) if figure == max(figures)]
    if len(tied) > 1:
        recalls = [dev.recall(rest + np.float32(weight) * column) for weight in tied]
        tied = [weight for weight, recall in zip(tied, recalls, strict=True) if recall == max(recalls)]
    return tied[len(tied) // 2], max(figures)


def _filled(column: Floats, valid: NDArray[np.bool_]) -> Floats:
    """Where a source says nothing: the lowest of the query; 0 where there is no candidate, or no score at all."""
    known = valid & np.isfinite(column)
    lowest = np.where(known, column, np.float32(np.inf)).min(axis=1, keepdims=True, initial=np.inf)
    lowest[np.isinf(lowest)] = 0
    filled: Floats = np.where(known, column, np.where(valid, lowest, np.float32(0)))
    return filled


def _spread(column: Floats, valid: NDArray[np.bool_]) -> float:
    """The standard deviation within queries, over all of them; 1 where nothing differs."""
    means = column.sum(axis=1, dtype=np.float64) / np.maximum(np.count_nonzero(valid, axis=1), 1)
    squares = np.where(valid, column - means[:, None], 0.0) ** 2
    spread = float(np.sqrt(squares.sum() / max(np.count_nonzero(valid), 1)))
    return spread if spread > 1e-9 else 1.0
