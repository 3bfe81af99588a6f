"""Choosing on dev what training does not decide: the settings of the score, and the weights of what is added to it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pixnar.base.progress import Progress
from pixnar.evaluation.metrics import reciprocal_ranks
from pixnar.evaluation.queries import Queries
from pixnar.fusion.fuse import Candidates as Table
from pixnar.fusion.fuse import Fusion, choose, without_dev
from pixnar.scoring import ScoreRule
from pixnar.search import SlotScores
from pixnar.search.ranker import Candidates, Query, Ranker

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


def docid_mrr(ranker: Ranker, queries: Sequence[Query], relevant: Sequence[set[str]]) -> float:
    """MRR@10 by docids alone."""
    return float(docid_ranks(ranker, queries, relevant).mean())


def docid_ranks(ranker: Ranker, queries: Sequence[Query], relevant: Sequence[set[str]]) -> NDArray[np.float64]:
    """Reciprocal ranks at 10 by docids alone, query by query."""
    found = ranker.spread(lambda scores: [hit.doc_id for hit in ranker.decode(scores, 10)], ranker.slot_scores(queries))
    return reciprocal_ranks(found, relevant, 10)


class RuleTuner:
    """Chooses the settings of the score by MRR@10 of docids; remembers what every rule reaches, query by query."""

    def __init__(
        self, ranker: Ranker, queries: Sequence[Query], dev: Queries, progress: Progress | None = None
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


def gather(ranker: Ranker, queries: Sequence[Query], depth: int, progress: Progress | None = None) -> list[Candidates]:
    """Candidates of each query with the scores of every source."""
    done = 0

    def one(pair: tuple[Query, SlotScores]) -> Candidates:
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
        Table(
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
        Table(np.arange(len(table)), {name: table.columns[name] for name in weights}) for table in tables if len(table)
    ]
    return without_dev(made, weights)


def ranked(tables: Sequence[Candidates], fusion: Fusion, k: int = 100) -> list[list[str]]:
    """The documents of each table, best first."""
    out = []
    for table in tables:
        chosen, _ = fusion.best({name: table.columns[name] for name in fusion.weights}, k)
        out.append([table.doc_ids[i] for i in chosen])
    return out
