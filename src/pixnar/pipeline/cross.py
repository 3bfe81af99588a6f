"""Cross-validation on the dev split: what is measured on some queries was chosen on others.

The queries are cut into halves. Settings of the score and weights of sources are chosen on one half and measured on the
other, and the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar.base.progress import Progress
from pixnar.evaluation.metrics import mrr_at, summary
from pixnar.evaluation.queries import Queries
from pixnar.fusion.fuse import DENSE, TEXT, Fusion
from pixnar.pipeline.tune import gather, ranked, tune_fusion, with_rule
from pixnar.scoring import ScoreRule
from pixnar.search.ranker import Candidates, Query, Ranker

Ints = NDArray[np.int64]

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
        queries: Sequence[Query],
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
