"""Choices on dev: the settings of the score, the weights of what is added to it, and their cross-validation.

The queries are cut into halves. Settings of the score and weights of sources are chosen on one half and measured on the
other, and the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar.base.progress import Progress
from pixnar.evaluation.measures import mrr_at, reciprocal_ranks, summary
from pixnar.evaluation.queries import Queries
from pixnar.fusion.fuse import DENSE, TEXT, Fusion, ScoreTable, choose, without_dev
from pixnar.scoring import ScoreRule
from pixnar.search import SlotScores
from pixnar.search.ranker import Candidates, PreparedQuery, Ranker

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

GRID: dict[str, tuple[dict[str, object], ...]] = {
    "order": ({"order": "bag"}, {"order": "any"}),
    "prior_weight": tuple({"prior_weight": w} for w in (0.75, 0.9, 1.0, 1.1)),
    "copy": tuple({"copy": w} for w in (0.0, 0.15, 0.3, 0.5, 0.7)),
    "length_norm": tuple({"length_norm": w} for w in (0.0, 0.15, 0.3, 0.5)),
    "aggregate": (
        {"aggregate": "max"},
        *({"aggregate": "logsumexp", "scale": scale} for scale in (0.4, 0.7, 1.0, 1.5)),
    ),
}
"""What is tried, setting by setting, from the rule that training used, with the score probability."""

COMPOSED_GRID: dict[str, tuple[dict[str, object], ...]] = {
    "aggregate": (
        {"aggregate": "max"},
        *({"aggregate": "logsumexp", "scale": scale} for scale in (0.5, 0.7, 1.0, 1.4)),
    ),
    "copy": tuple({"copy": w} for w in (0.0, 0.05, 0.1, 0.2, 0.4)),
}
"""… and with the composed score."""

_GAIN = 0.002  # relative: what a change must bring to be taken


def with_rule(ranker: Ranker, rule: ScoreRule) -> Ranker:
    """The same ranker under another rule."""
    return ranker.with_scorer(ranker.scorer.with_rule(rule))


def docid_mrr(ranker: Ranker, queries: Sequence[PreparedQuery], relevant: Sequence[set[str]]) -> float:
    """MRR@10 by docids alone."""
    return float(docid_ranks(ranker, queries, relevant).mean())


def docid_ranks(ranker: Ranker, queries: Sequence[PreparedQuery], relevant: Sequence[set[str]]) -> NDArray[np.float64]:
    """Reciprocal ranks at 10 by docids alone, query by query."""
    found = ranker.spread(lambda scores: [hit.doc_id for hit in ranker.decode(scores, 10)], ranker.slot_scores(queries))
    return reciprocal_ranks(found, relevant, 10)


class RuleTuner:
    """Chooses the settings of the score by MRR@10 of docids; remembers what every rule reaches, query by query."""

    def __init__(
        self, ranker: Ranker, queries: Sequence[PreparedQuery], dev: Queries, progress: Progress | None = None
    ) -> None:
        self._engine, self._queries, self._dev, self._progress = ranker, queries, dev, progress
        self._ranks: dict[ScoreRule, NDArray[np.float64]] = {}

    def ranks(self, rule: ScoreRule) -> NDArray[np.float64]:
        """Reciprocal ranks of all queries under a rule."""
        if rule not in self._ranks:
            self._ranks[rule] = docid_ranks(with_rule(self._engine, rule), self._queries, self._dev.relevant)
        return self._ranks[rule]

    def best(
        self,
        start: ScoreRule,
        within: NDArray[np.int64] | None = None,
        *,
        settings: Sequence[str] | None = None,
        orders: bool = True,
    ) -> ScoreRule:
        """The best rule found by going through the settings one at a time, on all queries or on some.

        A copy term that is switched off stays off: it is an element of the score, not a setting of it.
        """
        rule, some = start, slice(None) if within is None else within
        grid = COMPOSED_GRID if rule.score == "composed" else GRID
        most = float(self.ranks(rule)[some].mean())
        fixed = {name for name, open_ in (("order", orders), ("copy", rule.copy > 0)) if not open_}
        chosen = [
            name for name in (tuple(grid) if settings is None else settings) if name in grid and name not in fixed
        ]
        tries = [change for name in chosen for change in grid[name]]
        for i, change in enumerate(tries):
            if self._progress:
                self._progress("choosing the score on dev", i, len(tries))
            candidate = rule.with_(**change)
            value = float(self.ranks(candidate)[some].mean())
            if value > most * (1 + _GAIN):
                rule, most = candidate, value
        return rule


def gather(
    ranker: Ranker, queries: Sequence[PreparedQuery], depth: int, progress: Progress | None = None
) -> list[Candidates]:
    """Candidates of each query with the scores of every source."""
    done = 0

    def one(pair: tuple[PreparedQuery, SlotScores]) -> Candidates:
        nonlocal done
        found = ranker.candidates(*pair, depth)
        done += 1
        if progress:
            progress("scoring dev queries", done, len(queries))
        return found

    return ranker.spread(one, zip(queries, ranker.slot_scores(queries), strict=True))


def tune_fusion(tables: Sequence[Candidates], dev: Queries, sources: Sequence[str], units: dict[str, int]) -> Fusion:
    """Weights of the sources, chosen on dev."""
    made = [
        ScoreTable(
            np.array([units.get(doc_id, -1) for doc_id in table.doc_ids]),
            {name: table.columns[name] for name in sources},
        )
        for table in tables
    ]
    relevant = [{units[doc_id] for doc_id in wanted if doc_id in units} for wanted in dev.relevant]
    return choose(made, relevant, sources)


def fixed_fusion(tables: Sequence[Candidates], weights: dict[str, float]) -> Fusion:
    """The sources by given weights; the candidates say only how far their scores spread."""
    made = [
        ScoreTable(np.arange(len(table)), {name: table.columns[name] for name in weights})
        for table in tables
        if len(table)
    ]
    return without_dev(made, weights)


def ranked(tables: Sequence[Candidates], fusion: Fusion, k: int = 100) -> list[list[str]]:
    """The documents of each table, best first."""
    out = []
    for table in tables:
        chosen, _ = fusion.best({name: table.columns[name] for name in fusion.weights}, k)
        out.append([table.doc_ids[i] for i in chosen])
    return out


OPTIONAL = (DENSE, TEXT)
"""Sources with a file of their own, which an index may do without; in the order in which that is tried."""

_DEPTH = 100


class Fold(NamedTuple):
    """Queries that are measured, and the others, on which is chosen; by their numbers, ascending."""

    measured: Ints
    chosen_on: Ints


def folds(queries: int, seed: int = 0) -> list[Fold]:
    """Two halves, each measured once; without a second query there is nothing to choose on.

    >>> sorted(len(fold.measured) for fold in folds(5)), folds(1)
    ([2, 3], [])
    """
    if queries < 2:
        return []
    one, other = (np.sort(half) for half in np.array_split(np.random.default_rng(seed).permutation(queries), 2))
    return [Fold(one, other), Fold(other, one)]


def raised(base: float, figure: float) -> float:
    """The share by which a figure is higher than another, or lower; 1 if it rises from 0.

    >>> raised(0.5, 0.75), raised(0.0, 0.1), raised(0.0, 0.0)
    (0.5, 1.0, 0.0)
    """
    return (figure - base) / base if base else float(figure > 0)


class CrossValidation:
    """Candidates of the dev queries under the rule of each fold, and the fusions that are measured on them."""

    def __init__(
        self,
        ranker: Ranker,
        queries: Sequence[PreparedQuery],
        dev: Queries,
        rules: Sequence[ScoreRule],
        known: Mapping[ScoreRule, Sequence[Candidates]],
        progress: Progress | None = None,
    ) -> None:
        """`rules` are those of the folds of these queries; `known` are candidates that were gathered before."""
        self._dev, self._folds, self._units = dev, folds(len(dev)), ranker.place_of
        tables = dict(known)
        for rule in rules:
            if rule not in tables:
                tables[rule] = gather(with_rule(ranker, rule), queries, ranker.depth, progress)
        self._tables = [tables[rule] for rule in rules]
        self._runs: dict[tuple[str, ...], list[list[str]]] = {}

    def run(self, sources: Sequence[str]) -> list[list[str]]:
        """The best documents of each query, by weights that were chosen without it."""
        key = tuple(sources)
        if key not in self._runs:
            found: list[list[str]] = [[] for _ in range(len(self._dev))]
            for fold, tables in zip(self._folds, self._tables, strict=True):
                fusion = self._fusion(tables, fold.chosen_on, sources)
                rows = ranked([tables[i] for i in fold.measured.tolist()], fusion, _DEPTH)
                for i, row in zip(fold.measured.tolist(), rows, strict=True):
                    found[i] = row
            self._runs[key] = found
        return self._runs[key]

    def mrr(self, sources: Sequence[str]) -> float:
        """MRR@10 of `run`."""
        return mrr_at(self.run(sources), self._dev.relevant, 10)

    def summary(self, sources: Sequence[str]) -> dict[str, float]:
        """The figures of `run`."""
        return summary(dict(zip(self._dev.ids, self.run(sources), strict=True)), self._dev.qrels)

    def worth(self, sources: Sequence[str], margin: float) -> dict[str, float]:
        """Of each source that an index may do without, the share by which it raises MRR@10, given those kept so far.

        Those that are worth less than the margin are left out before the next is looked at.
        """
        kept, shares = list(sources), {}
        for name in OPTIONAL:
            rest = [source for source in kept if source != name]
            if name in kept:
                shares[name] = raised(self.mrr(rest), self.mrr(kept))
                kept = kept if shares[name] >= margin else rest
        return shares

    def _fusion(self, tables: Sequence[Candidates], queries: Ints, sources: Sequence[str]) -> Fusion:
        dev, numbers = self._dev, queries.tolist()
        some = Queries(*([part[i] for i in numbers] for part in (dev.ids, dev.texts, dev.grades)))
        return tune_fusion([tables[i] for i in numbers], some, sources, self._units)
