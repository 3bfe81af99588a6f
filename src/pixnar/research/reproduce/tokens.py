"""Tables 4 and 5: six ways to the best tokens of every slot, and what two models say, token by token."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import PixnarError
from pixnar.evaluation.queries import read_queries
from pixnar.index import Index
from pixnar.pipeline.tune import RuleTuner, with_rule
from pixnar.recipe.presets import CLOVER, PROBABILITY
from pixnar.research.reproduce.report import PAPER_TABLE4, Grid, StudyReport, better, paper_grid, quality, scatter
from pixnar.research.reproduce.study import Study
from pixnar.research.softmax import (
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
from pixnar.scoring import ScoreRule, token_scores
from pixnar.search import DocumentHit, Hit, SlotScores
from pixnar.search.ranker import PreparedQuery
from pixnar.search.types import Generated

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float32]
BEST = 1000  # tokens wanted of every slot
KEEP = 2048  # tokens that SVD-softmax's preview proposes for a slot
_STATES = 60_000  # hidden states of docids that clusters are made of
_DOCIDS = 8_000  # which they are drawn from
_BATCH = 32
_MEASURES = ("MRR@10", "R@100")


def table4(study: Study) -> StudyReport:
    """Quality and latency of every method on one index, by docids alone, with the score that is a softmax.

    Without `own_ngrams` of the plan no method is given anything that it did not find itself.
    """
    study.expect(2)
    given = study.plan.own_ngrams
    settings = [*PROBABILITY, "shortlist.learn=true"] + ([] if given else ["scoring.copy=0.0"])
    folder = study.phrases(study.plan.size, *settings)
    index = study.opened(folder, "docids")
    rule = _rule(study, index)
    methods = methods_of(index, [row.docid for row in study.corpus.docids()], seed=study.plan.seed, say=study.say)
    encoded: dict[str, PreparedQuery] = {}
    rows = {
        method.name: study.judged(
            method.name,
            [folder.name, method.name, BEST, rule.to_dict(), given],
            partial(ByMethod, index, method, rule=rule, own_ngrams=given, encoded=encoded),
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
    return StudyReport(
        "table4",
        "Table 4: ways to a large softmax",
        [grid, paper_grid("The paper, MS MARCO, 5 M tokens, on a GPU", theirs, PAPER_TABLE4)],
        [
            f"{facts['vocabulary']:,} tokens, {facts['slots']} slots, int8 rows, one thread; times are of scoring "
            f"alone, each query's best of two, over {len(texts)} dev queries, all methods in turn. Small vocabularies "
            "make a full softmax cheap: `pixnar bench softmax` has the same methods at up to 5 million tokens.",
            "Documents by their docids alone, score probability, any order, raw logits less their mean log Z. "
            + (
                "Every method is also given the query's own n-grams, exactly scored, with the copy term: what it finds "
                "itself is the rest."
                if given
                else "No copy term, and no method is given the query's own n-grams: a token that it does not find "
                "scores its floor."
            ),
        ],
        plot,
        {
            "methods": {
                name: times[name]
                | row.figures
                | {
                    "interval": row.interval("MRR@10"),
                    "p": {measure: None if row is first else row.p_value(first, measure) for measure in _MEASURES},
                }
                for name, row in rows.items()
            },
            "facts": facts,
            "own_ngrams": given,
            "rule": rule.to_dict(),
        },
    )


def _rule(study: Study, index: Index) -> ScoreRule:
    """The settings of the score for tokens in any order and raw logits, selected on dev with every token scored."""
    start = index.ranker.scorer.rule.with_(score="probability", order="any", normalize=False)

    def selected() -> dict[str, Any]:
        study.say(f"{study.name}: selecting the settings of the score on dev")
        dev = read_queries(study.corpus, "dev", study.recipe(CLOVER).scoring.tune_queries)
        ranker = with_rule(index.ranker.without_shortlist(), start)
        queries = [query._replace(tokens=None) for query in index.queries(dev.texts)]
        return RuleTuner(ranker, queries, dev, study.progress).best(start, orders=False).to_dict()

    return ScoreRule.from_dict(study.kept("rule of table 4", [index.folder.name, start.to_dict()], selected))


class ByMethod:
    """An index whose tokens are found by one of the methods; documents are ranked by their docids alone.

    With `own_ngrams` the tokens that stand in the query are scored whether or not the method finds them. Methods that
    share `encoded` encode a query once.
    """

    def __init__(
        self,
        index: Index,
        method: Softmax,
        best: int = BEST,
        *,
        rule: ScoreRule | None = None,
        own_ngrams: bool = True,
        encoded: dict[str, PreparedQuery] | None = None,
    ) -> None:
        self._index, self._method, self._best, self._own_ngrams = index, method, best, own_ngrams
        self._encoded = {} if encoded is None else encoded
        given = rule or index.ranker.scorer.rule
        self._rule = given.with_(score="probability", order="any", normalize=False)
        if not own_ngrams:
            self._rule = self._rule.with_(copy=0.0)
        self._engine = index.ranker.with_scorer(index.ranker.scorer.with_rule(self._rule))

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The k best documents."""
        return self.search_batch([query], k)[0]

    def search_batch(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """The k best documents of each query."""
        new = [text for text in dict.fromkeys(queries) if text not in self._encoded]
        if new:
            self._encoded.update(zip(new, self._index.queries(new), strict=True))
        scores = [self._slot_scores(self._encoded[text]) for text in queries]
        found = self._engine.spread(lambda one: self._engine.decode(one, k), scores)
        return [[Hit(hit.doc_id, hit.score, text) for hit, text in self._spelled(hits)] for hits in found]

    def _spelled(self, hits: Sequence[DocumentHit]) -> Iterable[tuple[DocumentHit, str]]:
        return zip(hits, self._index.table.spellings([hit.tokens for hit in hits]), strict=True)

    def _slot_scores(self, query: PreparedQuery) -> SlotScores:
        """The best tokens of every slot, and the query's own n-grams if they are given, as the decoder takes them."""
        scorer, x = self._engine.scorer, query.x
        own = query.own if self._own_ngrams else query.own[:0]
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

    rows, shortlist = index.rows, index.ranker.shortlist
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
        active_lists(rows, centres, states, max(64, round(shortlist.mean_length / 8))),
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


EXAMPLES = 8
DOCIDS = 4
_COLORS = ("#cfe3ff", "#ffe0c2")
_WIDE = 92  # letters of 8 points that fit into half of a picture of 13 inches


def examples(study: Study) -> StudyReport:
    """The best docids of some dev queries by PIXNAR and by CLOVERv2, with the borders of their tokens."""
    study.expect(2)
    pieces, phrases = study.opened(study.word_pieces()), study.opened(study.phrases(study.plan.size))
    dev = read_queries(study.corpus, "dev", study.plan.queries)
    picked = np.random.default_rng(study.plan.seed).permutation(len(dev))[:EXAMPLES]
    texts = [dev.texts[i] for i in sorted(picked.tolist())]
    made = {text: (phrases.generate(text, DOCIDS), pieces.generate(text, DOCIDS)) for text in texts}
    grid = Grid(["query", "PIXNAR", "CLOVERv2"])
    for text, columns in made.items():
        grid.rows.append((_escaped(text), *("<br>".join(map(_borders, column)) for column in columns)))

    def plot(axes: Axes) -> None:
        axes.figure.set_size_inches(13, 0.27 * sum(DOCIDS + 2 for _ in made) + 0.5)  # type: ignore[union-attr]
        axes.set_axis_off()
        axes.set(xlim=(0, 2 * _WIDE + 2), ylim=(-len(made) * (DOCIDS + 2), 1))
        line = 0
        for text, columns in made.items():
            axes.text(0, -line, text, fontsize=9, fontweight="bold", family="monospace", parse_math=False)
            for side, column in enumerate(columns):
                for row, one in enumerate(column, 1):
                    _draw(axes, one, side * (_WIDE + 2), -line - row)
            line += DOCIDS + 2
        axes.text(0, 0.9, "PIXNAR", fontsize=9, color="grey")
        axes.text(_WIDE + 2, 0.9, "CLOVERv2", fontsize=9, color="grey")

    told = {text: [[one._asdict() for one in column] for column in columns] for text, columns in made.items()}
    return StudyReport(
        "examples",
        "Table 5: docids that are generated, and the tokens they are made of",
        [grid],
        [f"{EXAMPLES} dev queries drawn with seed {study.plan.seed}, not chosen; borders are where tokens end."],
        plot,
        {"examples": told},
    )


def _borders(one: Generated) -> str:
    return " ".join(f"`{token.replace('`', chr(0x2BC)).replace('|', '∣')}`" for token in one.tokens)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _draw(axes: Axes, one: Generated, x: float, y: float) -> None:
    end = x + _WIDE
    for i, token in enumerate(one.tokens):
        shown = token if x + len(token) <= end else token[: max(0, int(end - x) - 1)] + "…"
        axes.text(
            x, y, shown, fontsize=8, family="monospace", parse_math=False,
            bbox={"facecolor": _COLORS[i % 2], "edgecolor": "none", "pad": 1.2},
        )  # fmt: skip
        x += len(shown) + 1.2
        if x >= end:
            break
