"""Table 4: six ways to the best tokens of every slot, on one trained index."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pixnar.errors import PixnarError
from pixnar.evaluate.queries import read_queries
from pixnar.index import Index
from pixnar.index.engine import Query
from pixnar.recipe import Recipe
from pixnar.recipe.clover import PROBABILITY
from pixnar.reproduce import paper
from pixnar.reproduce.report import Grid, Report, better, paper_grid, quality, scatter
from pixnar.reproduce.study import Study
from pixnar.scoring import token_scores
from pixnar.search import Hit, SlotScores
from pixnar.softmax import (
    Full,
    LearnedShortlist,
    Softmax,
    Top,
    active_lists,
    centroid_lists,
    int4_preview,
    low_rank_preview,
    main_directions,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float32]
BEST = 1000  # tokens wanted of every slot
KEEP = 2048  # tokens that SVD-softmax's preview proposes for a slot
_STATES = 60_000  # hidden states of docids that clusters are made of
_DOCIDS = 8_000  # which they are drawn from
_BATCH = 32
_MEASURES = ("MRR@10", "R@100")


def table4(study: Study) -> Report:
    """Quality and latency of every method on an index of the whole recipe, with the score that is a softmax."""
    study.expect(2)
    wish = study.recipe(Recipe(), [f"vocab.size={study.plan.size}", *PROBABILITY])
    folder = study.index("PIXNAR, probability", wish)
    index = study.opened(folder, "docids")
    methods = methods_of(index, [row.docid for row in study.corpus.docids()], seed=study.plan.seed, say=study.say)
    rows = {
        method.name: study.judged(
            method.name,
            [folder.name, method.name, BEST],
            partial(ByMethod, index, method),
            measures=_MEASURES,
        )
        for method in methods
    }
    texts = read_queries(study.corpus, "dev", study.plan.timed).texts
    times = study.kept(
        "times of methods",
        [folder.name, BEST, len(texts)],
        lambda: measured(methods, index.encoder.query_vectors(texts)[0], BEST, repeats=2, say=study.say),
    )
    first = next(iter(rows.values()))
    columns = [
        "method",
        *_MEASURES,
        "MRR@10 against full",
        "R@100 against full",
        "mean ms",
        "p99 ms",
        "rows a slot",
        "MB",
    ]
    grid = Grid(columns)
    for name, row in rows.items():
        against = (None, None) if row is first else (better(row, first), better(row, first, "R@100"))
        one = times[name]
        spent = (
            f"{one['ms']['mean']:.2f}",
            f"{one['ms']['p99']:.2f}",
            f"{one['scored']:,.0f}",
            f"{one['memory_mb']:.0f}",
        )
        grid.rows.append((name, *quality(row, _MEASURES), *against, *spent))

    def plot(axes: Axes) -> None:
        spent = {name: times[name]["ms"] for name in rows}
        scatter(
            axes,
            {
                name: (spent[name]["mean"], spent[name]["p99"], 100 * row.figures["MRR@10"])
                for name, row in rows.items()
            },
        )
        axes.set(xlabel="ms of scoring, mean to p99", ylabel=f"{study.plan.split} MRR@10, %", title=study.name)

    facts = index.manifest["facts"]
    theirs = ["method", *_MEASURES, "mean ms", "p99 ms"]
    return Report(
        "table4",
        "Table 4: ways to a large softmax",
        [grid, paper_grid("The paper, MS MARCO, 5 M tokens, on a GPU", theirs, paper.TABLE4)],
        [
            f"{facts['vocabulary']:,} tokens, {facts['slots']} slots, int8 rows, one thread; times are of scoring "
            f"alone, each query's best of two, over {len(texts)} dev queries, all methods in turn. Small vocabularies "
            "make a full softmax cheap: `pixnar bench softmax` has the same methods at up to 5 million tokens.",
            "Documents by their docids alone, score probability, any order, raw logits less their mean log Z. Every "
            "method is also given the query's own n-grams, exactly scored, with the copy term: what it finds itself is "
            "the rest.",
        ],
        plot,
        {"methods": {name: times[name] | row.figures for name, row in rows.items()}, "facts": facts},
    )


class ByMethod:
    """An index whose tokens are found by one of the methods; documents are ranked by their docids alone."""

    def __init__(self, index: Index, method: Softmax, best: int = BEST) -> None:
        self._index, self._method, self._best = index, method, best
        self._rule = index.engine.scorer.rule.with_(score="probability", order="any", normalize=False)
        self._engine = index.engine.with_scorer(index.engine.scorer.with_rule(self._rule))

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The k best documents."""
        return self.search_batch([query], k)[0]

    def search_batch(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """The k best documents of each query."""
        scores = [self._slot_scores(query) for query in self._index.queries(queries)]
        found = self._engine.spread(lambda one: self._engine.decode(one, k), scores)
        return [[Hit(hit.doc_id, hit.score, self._index.spelling(hit.tokens)) for hit in hits] for hits in found]

    def _slot_scores(self, query: Query) -> SlotScores:
        """The best tokens of every slot, and the query's own n-grams, as the decoder takes them."""
        scorer, x, own = self._engine.scorer, query.x, query.own
        top: Top = self._method.top(x[None], self._best)
        end, priors = scorer.head.count - 1, scorer.priors.tokens
        copied = scorer.head.logits(x[1:], own) if len(own) else np.zeros((len(x) - 1, 0), np.float32)
        slots = []
        for t in range(len(x) - 1):
            ids, first = np.unique(np.concatenate([top[t][0], own]), return_index=True)
            logits = np.concatenate([top[t][1], copied[t]])[first]
            ids, logits = ids[ids != end], logits[ids != end]
            log_copy = np.where(np.isin(ids, own), -np.log(max(1, len(own))), -np.inf).astype(np.float32)
            scores = token_scores(np, logits - scorer.log_z[t + 1], log_copy, priors[ids], self._rule)
            above = scores > (scorer.floors[ids] if scorer.floors is not None else -np.inf)
            slots.append((ids[above], scores[above].astype(np.float32)))
        return SlotScores.sparse(slots, np.zeros(len(slots), np.float32))


def methods_of(
    index: Index, docids: Sequence[str], *, best: int = BEST, seed: int = 0, say: Callable[[str], None] = print
) -> list[Softmax]:
    """All methods over the rows of an index, the full softmax first, its own shortlist last."""
    from pixnar.model.kmeans import kmeans

    rows, shortlist = index.rows, index.engine.shortlist
    if shortlist is None:
        raise PixnarError(f"{index.folder} has no shortlist to compare: build it with shortlist.learn = true")
    random = np.random.default_rng(seed)
    some = random.choice(len(docids), min(len(docids), _DOCIDS), replace=False)
    say(f"hidden states of {len(some):,} docids")
    vectors, _ = index.encoder.query_vectors([docids[i] for i in some])
    states = vectors[:, 1:].reshape(-1, rows.dim)
    states = states[np.random.default_rng(seed).permutation(len(states))[:_STATES]]
    centres = kmeans(states, min(len(shortlist.c), len(states) // 8), seed=seed).numpy()
    learned, directions = LearnedShortlist(rows, shortlist), main_directions(rows)
    return [
        Full(rows),
        low_rank_preview(rows, rows.dim // 8, KEEP, "SVD-softmax", directions),
        low_rank_preview(rows, rows.dim // 4, 2 * best, "HiRE, low rank", directions),
        int4_preview(rows, 2 * best),
        centroid_lists(rows, centres, round(learned.scored(vectors[:100]))),  # as many a slot as the shortlist has
        active_lists(rows, centres, states, max(64, shortlist.lists.shape[1] // 8)),
        learned,
    ]


def measured(
    methods: Sequence[Softmax], x: Floats, best: int, repeats: int, say: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """Latency of every method: query by query on one thread and on two, and in batches."""
    figures: dict[str, dict[str, Any]] = {
        method.name: {"memory_mb": method.nbytes() / 1e6, "scored": method.scored(x)} for method in methods
    }
    whole = [methods[0].top(one[None], 10) for one in x]
    for method in methods:
        shares = [_shared(method.top(one[None], best), top) for one, top in zip(x, whole, strict=True)]
        figures[method.name]["found_of_top_10"] = float(np.mean(shares))
    for name, batch, threads in (("ms", 1, 1), ("ms_2_threads", 1, 2), ("ms_batch_32", _BATCH, 1)):
        say(f"measuring {name}")
        blocks = [x[i : i + batch] for i in range(0, len(x), batch) if len(x[i : i + batch]) == batch]
        times = np.full((len(methods), len(blocks)), np.inf)
        for _ in range(repeats):
            for j, block in enumerate(blocks):
                for i, method in enumerate(methods):
                    began = time.perf_counter()
                    method.top(block, best, threads)
                    times[i, j] = min(times[i, j], (time.perf_counter() - began) * 1000 / batch)
        for i, method in enumerate(methods if blocks else ()):
            one = times[i]
            spread = {"mean": one.mean(), "p50": np.median(one), "p99": np.percentile(one, 99)}
            figures[method.name][name] = {key: float(value) for key, value in spread.items()}
    return figures


def _shared(top: Top, whole: Top) -> float:
    """How much of the full softmax's best is among the answer, slot by slot."""
    return float(np.mean([np.isin(best, ids).mean() for (best, _), (ids, _) in zip(whole, top, strict=True)]))
