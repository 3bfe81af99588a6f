"""Choices on dev: the lists of a query, the settings of the score and the weights of every fusion."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar.evaluation.queries import Queries
from pixnar.fusion.fuse import DENSE, EXPANSION, LEXICAL, TEXT
from pixnar.fusion.fuse import DOCIDS as DOCID_SCORE
from pixnar.index.files import (
    SHORTLIST,
)
from pixnar.index.manifest import SOURCES
from pixnar.pipeline.context import FitContext
from pixnar.pipeline.tune import (
    COMPOSED_GRID,
    GRID,
    CrossValidation,
    RuleTuner,
    docid_mrr,
    docid_ranks,
    fixed_fusion,
    folds,
    gather,
    tune_fusion,
    with_rule,
)
from pixnar.scoring import ScoreRule
from pixnar.search.ranker import PreparedQuery, Ranker

Floats = NDArray[np.float32]

# Weights of the sources where there is no dev split, measured in docs/LOG.md; others count nothing.
_WITHOUT_DEV = {DOCID_SCORE: 1.0, LEXICAL: 1.0, TEXT: 0.5}
_OF_TEXT = {DOCID_SCORE: 1.0, LEXICAL: 3.0, TEXT: 2.0}  # where the docids are made of the text
SHARES_OF_LISTS = (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4)
"""How many lists a query may take, as shares of those that come to 5 % of the vocabulary."""
_MOST_LISTED, _LIST_LOSS = 0.2, 0.01  # share of the vocabulary, and what may be lost of dev MRR@10
_UNJUDGED = 2  # as in SHARES_OF_LISTS, where there is no dev split to ask


class DevChoices:
    """Chooses on the dev split what training does not decide."""

    def __init__(self, fit: FitContext) -> None:
        self.fit = fit

    def choose(
        self, ranker: Ranker, queries: Sequence[PreparedQuery], dev: Queries
    ) -> tuple[ScoreRule, dict[str, dict[str, Any] | None]]:
        """The settings of the score and the weights of every fusion; both chosen on dev where the recipe lets them.

        All figures are cross-validated; what is shipped is then chosen on all queries.
        """
        rule = ranker.scorer.rule
        if not len(dev):
            self.fit.say(
                "no dev split: the recipe's own settings and fixed weights are used; real queries would choose better"
            )
            if ranker.shortlist is not None and rule.score == "composed" and not self.fit.recipe.shortlist.k:
                first = ranker.shortlist
                ranker.shortlist = first.take(min(_UNJUDGED * first.k, len(first.c)))
                queries = ranker.listed(queries)
            self._ship_shortlist(ranker)
            return rule, self._fixed(ranker, queries)
        some = dev.first(self.fit.recipe.scoring.tune_queries)  # the weights of a fusion are chosen on all
        if ranker.shortlist is not None and rule.score == "composed" and not self.fit.recipe.shortlist.k:
            queries = self._lists_of_a_query(ranker, queries, some)
        self._ship_shortlist(ranker)
        tuner, halves = RuleTuner(ranker, queries[: len(some)], some, self.fit.progress), folds(len(dev))
        rules = [rule] * len(halves)
        if self.fit.recipe.scoring.tune:
            orders, start = self.fit.recipe.scoring.order == "auto", rule
            rule = tuner.best(start, orders=orders)
            for i, half in enumerate(halves):
                within = half.chosen_on[half.chosen_on < len(some)]
                rules[i] = tuner.best(start, within, orders=orders) if len(within) else start
            grid = COMPOSED_GRID if rule.score == "composed" else GRID
            tuned = ", ".join(f"{name} {value}" for name, value in rule.to_dict().items() if name in (*grid, "scale"))
            self.fit.say(f"score chosen on dev: {tuned}")
        self._compare_with_full(ranker, queries, some, tuner, rules)
        ranker = with_rule(ranker, rule)
        tables = gather(ranker, queries, ranker.depth, self.fit.progress)
        crossed = CrossValidation(ranker, queries, dev, rules, {rule: tables}, self.fit.progress)
        own, everything = _sources(tables[0].columns)
        if halves and self.fit.recipe.fuse.margin:
            worth = crossed.worth(everything, self.fit.recipe.fuse.margin)
            self.fit.report.facts["worth"] = worth
            dropped = {name for name, share in worth.items() if share < self.fit.recipe.fuse.margin}
            everything = [name for name in everything if name not in dropped]
            for name, share in worth.items():
                self.fit.say(f"{name}: {share:+.1%} of MRR@10, cross-validated" + (", left out" * (name in dropped)))
        if not halves:
            self.fit.say("dev has one query: too few to cross-validate, so no figures are measured")
        fusions: dict[str, dict[str, Any] | None] = {}
        told = ("docids", "with lexical", "with fusion")
        for key, name, sources in zip(SOURCES, told, (own[:1], own, everything), strict=True):
            fusion = tune_fusion(tables, dev, sources, ranker.place_of)
            self.fit.report.dev[name] = crossed.summary(sources) if halves else {}
            figures = ", ".join(f"{key} {value:.3f}" for key, value in self.fit.report.dev[name].items())
            if halves:
                self.fit.say(f"dev, cross-validated, {name}: {figures}")
            fusions[key] = None if list(fusion.weights) == [DOCID_SCORE] else fusion.to_dict()
        return rule, fusions

    def _fixed(self, ranker: Ranker, queries: Sequence[PreparedQuery]) -> dict[str, dict[str, Any] | None]:
        """Fusions by fixed weights; docids stand in for queries to see how far scores spread."""
        tables = gather(ranker, queries, ranker.depth, self.fit.progress)
        own, everything = _sources(tables[0].columns)
        fusions: dict[str, dict[str, Any] | None] = dict.fromkeys(SOURCES)
        for key, sources in zip(SOURCES[1:], (own, everything), strict=True):
            usual = _OF_TEXT if self.fit.named else _WITHOUT_DEV
            weights = {name: weight for name, weight in usual.items() if name in sources}
            if len(weights) > 1:
                fusions[key] = fixed_fusion(tables, weights).to_dict()
        return fusions

    def _lists_of_a_query(
        self, ranker: Ranker, queries: Sequence[PreparedQuery], dev: Queries
    ) -> Sequence[PreparedQuery]:
        """Take as many lists a query as dev MRR@10 within 1 % needs; no shortlist where a fifth of V is not enough.

        The ranker is changed; the queries come back with their new tokens.
        """
        first = ranker.shortlist
        assert first is not None
        few = len(dev)
        full = docid_mrr(ranker.without_shortlist(), [q._replace(tokens=None) for q in queries[:few]], dev.relevant)
        most = _MOST_LISTED * (ranker.scorer.head.count - 1)
        for k in sorted({min(max(1, round(share * first.k)), len(first.c)) for share in SHARES_OF_LISTS}):
            ranker.shortlist = first.take(k)
            found = ranker.listed(queries)
            size = np.mean([0 if q.tokens is None else len(q.tokens) for q in found[:few]])
            if size > most:
                break
            if docid_mrr(ranker, found[:few], dev.relevant) >= (1 - _LIST_LOSS) * full:
                return found
        self.fit.say("shortlist: a fifth of the vocabulary loses more than 1 % of MRR@10, so every token is scored")
        ranker.shortlist = None
        return ranker.listed(queries)

    def _ship_shortlist(self, ranker: Ranker) -> None:
        """Write the shortlist that the index searches with; an earlier run may have left another one."""
        path = self.fit.folder / SHORTLIST
        path.unlink(missing_ok=True)
        if ranker.shortlist is not None:
            ranker.shortlist.save(path)

    def _compare_with_full(
        self,
        ranker: Ranker,
        queries: Sequence[PreparedQuery],
        dev: Queries,
        tuner: RuleTuner,
        rules: Sequence[ScoreRule],
    ) -> None:
        """What the shortlist costs: MRR@10 by docids with it and with every token scored, cross-validated."""
        if ranker.shortlist is None or not rules:
            return
        cut, full = [], []
        for half, rule in zip(folds(len(queries)), rules, strict=True):
            measured = half.measured[half.measured < len(dev)]
            every = [queries[i]._replace(tokens=None) for i in measured.tolist()]
            relevant = [dev.relevant[i] for i in measured.tolist()]
            cut.append(tuner.ranks(rule)[measured])
            full.append(docid_ranks(with_rule(ranker, rule).without_shortlist(), every, relevant))
        size = float(np.mean([0 if q.tokens is None else len(q.tokens) for q in queries[: len(dev)]]))
        share = size / (ranker.scorer.head.count - 1)
        reached = float(np.concatenate(cut).mean()), float(np.concatenate(full).mean())
        self.fit.report.facts |= {"shortlist_share": share, "shortlist_mrr10": reached[0], "full_mrr10": reached[1]}
        self.fit.say(
            f"shortlist: MRR@10 {reached[0]:.3f} with {share:.1%} of the vocabulary, {reached[1]:.3f} with all of it"
        )


def _sources(columns: Collection[str]) -> tuple[list[str], list[str]]:
    """Docids and the lexical index; and these with vectors."""
    own = [DOCID_SCORE] + [name for name in (LEXICAL, EXPANSION) if name in columns]
    return own, own + [name for name in (DENSE, TEXT) if name in columns]
