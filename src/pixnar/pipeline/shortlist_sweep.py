"""Sweep of the shortlist: m, r and k against cost, recall of needed tokens and MRR@10 on dev."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pixnar.base.errors import CorpusError, MissingExtraError
from pixnar.base.progress import Progress
from pixnar.base.storage import atomic_write
from pixnar.corpus import open_corpus
from pixnar.evaluation.queries import read_queries
from pixnar.index import Index
from pixnar.index.on_device import model_of
from pixnar.model.features import FeatureCache
from pixnar.model.nar import Nar
from pixnar.pipeline.choices import SHARES_OF_LISTS
from pixnar.pipeline.run import default_cache
from pixnar.pipeline.shortlist import cells_of_docids, examples, standardised
from pixnar.pipeline.tune import docid_mrr
from pixnar.recipe import ShortlistSettings
from pixnar.runtime.encoder_folder import FP32
from pixnar.runtime.shortlist import Floats, Ids, Shortlist, defaults, token_lists
from pixnar.train.data import TrainingData
from pixnar.train.shortlist_learning import Options, learn, start

DIRECT = "direct top-K by x_0"
_DIRECT_SIZES = 8
KMEANS = "k-means only"
LEARNED = "learned"
CELLS = "cells of docids"


class Chooser(Protocol):
    """Whatever gives the tokens to score for a query."""

    def tokens(self, x0: ArrayLike, extra: ArrayLike | None = None) -> Ids:
        """The tokens, sorted, each once."""
        ...


Quality = Callable[[Chooser], float]
Cost = Callable[[Chooser], float]


@dataclass(frozen=True)
class Row:
    """One way to choose tokens; what is not known or does not apply is None."""

    kind: str
    m: int | None
    r: int | None
    k: int | None
    recall: float  # mean share of a query's needed tokens that are in its shortlist
    size: float  # mean number of tokens
    share: float  # of the vocabulary
    quality: float | None = None
    lost: float | None = None  # quality of the full softmax minus this one
    ms: float | None = None  # mean time to choose the tokens of a query and score them


@dataclass(frozen=True)
class Direct:
    """The exact best tokens of the whole vocabulary by x_0·w + b: what lists try to reach, at the price of all rows."""

    rows: Any
    bias: Any
    size: int

    def tokens(self, x0: ArrayLike, extra: ArrayLike | None = None) -> Ids:
        """The `size` best tokens, without the end token, and `extra`."""
        found = token_lists(np.asarray(x0)[None], self.rows, self.bias, self.size)[0]
        return np.unique(found if extra is None else np.concatenate([found, np.asarray(extra, dtype=np.uint32)]))


def sweep(
    x0: Floats,
    needed: Sequence[ArrayLike],
    vectors: Iterable[tuple[str, Floats]],
    rows: Any,
    bias: Any,
    *,
    r: Sequence[int],
    k: Sequence[int],
    ready: Sequence[tuple[str, Shortlist]] = (),
    direct: Sequence[int] | None = None,
    extra: Sequence[ArrayLike] | None = None,
    quality: Quality | None = None,
    full: float | None = None,
    cost: Cost | None = None,
    progress: Progress | None = None,
) -> list[Row]:
    """A row for each of `vectors` (a kind, e.g. `LEARNED`, and its c [m, d]; several m are several entries), r and k.

    `ready` are shortlists whose lists are made already, such as cells of docids, each with the k to try.
    `needed` are the tokens each query x_0 should find and `extra` those it brings itself. `rows` and `bias` are the
    head's, the end token last. `direct` are the sizes to show the exact top-K at; without it, some the lists came to.
    `quality` measures a shortlist (MRR@10, say), `full` is what scoring every token reaches; `cost` takes its time.
    """
    queries = _SweptQueries(x0, needed, extra, len(rows) - 1)
    found: list[Row] = []
    for kind, shortlist in ready:
        row = queries.row(shortlist, kind, len(shortlist.c), shortlist.longest, shortlist.k)
        found.append(_judged(row, shortlist, quality, full, cost))
        if progress is not None:
            progress("sweep of cells", len(found), len(ready))
    for number, (kind, c) in enumerate(vectors):
        for one in _cuts(c, rows, bias, r, k):
            made = (kind, len(c), one.lists.shape[1], one.k)
            found.append(_judged(queries.row(one, *made), one, quality, full, cost))
            if progress is not None:
                progress("sweep", len(found) - len(ready), (number + 1) * len(r) * len(k))
    for size in _some({round(row.size) for row in found}) if direct is None else sorted(set(direct)):
        exact = Direct(rows, bias, max(1, size))
        found.append(_judged(queries.row(exact, DIRECT, None, None, None), exact, quality, full, None))
    return found


def _cuts(c: Floats, rows: Any, bias: Any, rs: Sequence[int], ks: Sequence[int]) -> Iterator[Shortlist]:
    """A shortlist for each different r and k that fit; the lists, best token first, are made once."""
    longest = Shortlist(c, token_lists(c, rows, bias, max(rs)), 1)
    for r in sorted({min(r, longest.lists.shape[1]) for r in rs}):
        for k in sorted({min(k, len(c)) for k in ks}):
            yield longest.cut(r, k)


class _SweptQueries:
    """The queries and what each needs; the end token, always scored, is not counted."""

    def __init__(
        self, x0: Floats, needed: Sequence[ArrayLike], extra: Sequence[ArrayLike] | None, vocabulary: int
    ) -> None:
        if len(x0) != len(needed) or not len(x0) or (extra is not None and len(extra) != len(x0)):
            raise ValueError(f"a sweep needs tokens for each of its {len(x0)} queries, at least one")
        ids = [np.unique(np.asarray(tokens, dtype=np.int64)) for tokens in needed]
        self._needed = [tokens[(tokens >= 0) & (tokens < vocabulary)] for tokens in ids]
        self._x0, self._extra, self._vocabulary = x0, extra, vocabulary

    def row(self, chooser: Chooser, kind: str, m: int | None, r: int | None, k: int | None) -> Row:
        shares: list[float] = []
        sizes: list[int] = []
        for number, (x0, needed) in enumerate(zip(self._x0, self._needed, strict=True)):
            tokens = chooser.tokens(x0, None if self._extra is None else self._extra[number])
            sizes.append(len(tokens))
            if len(needed):
                shares.append(float(_inside(needed, tokens).mean()))
        size = float(np.mean(sizes))
        recall = float(np.mean(shares)) if shares else 1.0
        return Row(kind, m, r, k, recall, size, size / self._vocabulary)


def _inside(needed: NDArray[np.int64], tokens: Ids) -> NDArray[np.bool_]:
    places = np.minimum(np.searchsorted(tokens, needed.astype(np.uint32)), len(tokens) - 1)
    inside: NDArray[np.bool_] = tokens[places] == needed
    return inside


def _judged(row: Row, chooser: Chooser, quality: Quality | None, full: float | None, cost: Cost | None) -> Row:
    if cost is not None:
        row = dataclasses.replace(row, ms=cost(chooser))
    if quality is None:
        return row
    value = float(quality(chooser))
    return dataclasses.replace(row, quality=value, lost=None if full is None else full - value)


def table(rows: Sequence[Row]) -> str:
    """The rows as text, one line each."""
    names = f"{'recall':>7} {'size':>9} {'of V':>7} {'quality':>8} {'lost':>7} {'ms':>7}"
    lines = [f"{'':20} {'m':>6} {'r':>7} {'k':>3} {names}"]
    for row in rows:
        made = " ".join(f"{_shown(value):>{width}}" for value, width in ((row.m, 6), (row.r, 7), (row.k, 3)))
        gains = f"{_shown(row.quality):>8} {_shown(row.lost):>7} {'-' if row.ms is None else f'{row.ms:.2f}':>7}"
        lines.append(f"{row.kind:20} {made} {row.recall:7.1%} {row.size:9,.0f} {row.share:7.2%} {gains}")
    return "\n".join(lines)


def draw(rows: Sequence[Row], path: str | os.PathLike[str], full: float | None = None) -> None:
    """Recall and quality against the mean length of the shortlist, and quality against time, as a PNG picture."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("a plot", "plot") from error
    ranked = [row for row in rows if row.quality is not None]
    timed = [row for row in ranked if row.ms is not None]
    panels = 1 + bool(ranked) + bool(timed)
    figure = Figure(figsize=(4.6 * panels + 1.8, 4), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    looks = _Looks(rows)
    looks.draw(axes[0], [(row.size, row.recall, row) for row in rows], "recall of needed tokens")
    if ranked:
        looks.draw(axes[1], [(row.size, row.quality or 0.0, row) for row in ranked], "MRR@10")
    if timed:
        points = [(row.ms or 0.0, row.quality or 0.0, row) for row in timed]
        looks.draw(axes[2], points, "MRR@10", "ms to choose and score")
    for axis in axes[1:] if full is not None else ():
        axis.axhline(full, color="black", lw=1, ls=":")
    figure.legend(handles=looks.handles(full is not None and panels > 1), loc="outside right center", fontsize=8)
    with atomic_write(path) as file:
        figure.savefig(file, dpi=150, format="png")


class _Looks:
    """A colour for each kind and m, a marker for each k; a line joins lists of growing length."""

    def __init__(self, rows: Sequence[Row]) -> None:
        kinds = list(dict.fromkeys((row.kind, row.m) for row in rows if row.kind != DIRECT))
        self._colors = {one: f"C{i % 10}" for i, one in enumerate(kinds)}
        if any(row.kind == DIRECT for row in rows):
            self._colors[DIRECT, None] = "black"
        counts = sorted({row.k for row in rows if row.k is not None})
        self._markers = {k: "osD^vPX*<>"[i % 10] for i, k in enumerate(counts)}

    def draw(
        self,
        axis: Any,
        points: Sequence[tuple[float, float, Row]],
        what: str,
        against: str = "mean tokens in the shortlist",
    ) -> None:
        """One panel."""
        from matplotlib.ticker import FuncFormatter, LogLocator

        groups: dict[tuple[str, int | None, int | None], list[tuple[float, float]]] = {}
        for x, y, row in points:
            groups.setdefault((row.kind, row.m, row.k), []).append((x, y))
        for (kind, m, k), values in groups.items():
            marker = "." if k is None else self._markers[k]
            style = "--" if kind == KMEANS else "-"
            color = self._colors[kind, m]
            axis.plot(*zip(*sorted(values), strict=True), style, marker=marker, ms=4, lw=0.8, alpha=0.8, color=color)
        axis.set(xlabel=against, ylabel=what, xscale="log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.6g}"))
        axis.minorticks_off()
        axis.spines[["top", "right"]].set_visible(False)

    def handles(self, full: bool) -> list[Any]:
        """What the legend shows."""
        from matplotlib.lines import Line2D

        made = [
            Line2D(
                [],
                [],
                color=color,
                ls="--" if kind == KMEANS else "-",
                label=kind if m is None else f"{kind}, m = {m:,}",
            )
            for (kind, m), color in self._colors.items()
        ]
        made += [
            Line2D([], [], color="grey", ls="", marker=mark, label=f"k = {k}") for k, mark in self._markers.items()
        ]
        return [*made, Line2D([], [], color="black", lw=1, ls=":", label="every token")] if full else made


def _some(sizes: set[int]) -> list[int]:
    """Of many sizes a few, from the smallest to the largest."""
    ordered = sorted(sizes)
    places = np.linspace(0, len(ordered) - 1, min(len(ordered), _DIRECT_SIZES)).round().astype(int)
    return [ordered[place] for place in places]


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


_TIMED = 100  # queries whose scoring is timed


@dataclass(frozen=True)
class Sweep:
    """The rows, and what scoring every token reaches."""

    rows: list[Row]
    full: float
    vocabulary: int

    def text(self) -> str:
        """A table to be read."""
        return f"full softmax over {self.vocabulary:,} tokens: MRR@10 {self.full:.4f}\n{table(self.rows)}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"full": self.full, "vocabulary": self.vocabulary, "rows": [asdict(row) for row in self.rows]}


def sweep_index(
    index: str | os.PathLike[str],
    corpus: str,
    *,
    ms: Sequence[int] = (),
    rs: Sequence[int] = (),
    ks: Sequence[int] = (),
    learned: bool = False,
    minutes: float = 2.0,
    queries: int = 300,
    plot: Path | None = None,
    progress: Progress | None = None,
) -> Sweep:
    """Make lists for every m, cut them to every r and k, and measure each on dev by docids alone.

    The lists are those that `fit` makes for the index's score: cells of docids for the composed score, learned ones for
    the other. With `learned`, an index with a composed score gets learned lists beside its cells, too.
    """
    opened = Index.load(index, shortlist=False)
    source = open_corpus(corpus)
    dev = read_queries(source, "dev", queries)
    if not len(dev):
        raise CorpusError(f"{source.name} has no dev split: a sweep needs judged queries")
    model, ranker = model_of(Path(index)), opened.ranker
    trained = opened.manifest["recipe"]["train"]
    passages, typos = int(trained.get("passages", 0)), float(trained.get("typos", 0.0))
    data = TrainingData.read(source, opened.table.vocabulary, progress, passages=passages, typos=typos)
    if model.design == "mlp":
        precision = opened.manifest.get("facts", {}).get("vectors", {}).get("precision", FP32)
        features = FeatureCache(model.encoder, default_cache() / "features", precision=precision)
        data.vectors = features.vectors(data.inputs, progress)
    x, pooled = model.query_vectors(dev.texts)
    asked = ranker.queries(dev.texts, x, pooled)
    full = docid_mrr(ranker, asked, dev.relevant)

    def quality(chooser: Chooser) -> float:
        cut = [query._replace(tokens=chooser.tokens(query.x[0], query.own)) for query in asked]
        ranker.shortlist = chooser  # type: ignore[assignment]
        try:
            return docid_mrr(ranker, cut, dev.relevant)
        finally:
            ranker.shortlist = None

    def cost(chooser: Chooser) -> float:
        """Milliseconds a query, each the best of three."""
        times = []
        for query in asked[:_TIMED]:
            runs = []
            for _ in range(3):
                began = time.perf_counter()
                ranker.scorer.one(query.x, query.own, chooser.tokens(query.x[0], query.own))
                runs.append((time.perf_counter() - began) * 1e3)
            times.append(min(runs))
        return float(np.mean(times))

    composed = ranker.scorer.rule.score == "composed"
    cells = _cells(model, data, ms, rs, ks, progress) if composed else []
    x0, targets = examples(model, data, 0)
    head = standardised(model.head, x0) if composed else model.head
    m, r, _ = defaults(len(data.vocabulary), len(x0))
    vectors = []
    for size in (ms or [m]) if learned or not composed else ():
        options = Options(m=size, minutes=minutes)
        vectors += [
            (KMEANS, start(x0, options, head)),
            (LEARNED, learn(x0, targets, head, options, progress)),
        ]
    rows = sweep(
        x[:, 0],
        _needed(data, dev.relevant),
        vectors,
        *head.arrays(),
        r=list(rs) or [max(1, r // 4), max(1, r // 2), r],
        k=list(ks) or [1, 3, 5, 10],
        ready=[(CELLS, shortlist) for shortlist in cells],
        extra=[query.own for query in asked],
        quality=quality,
        full=full,
        cost=cost,
        progress=progress,
    )
    if plot is not None:
        draw(rows, plot, full)
    return Sweep(rows, full, len(data.vocabulary))


def _cells(
    model: Nar, data: TrainingData, ms: Sequence[int], rs: Sequence[int], ks: Sequence[int], progress: Progress | None
) -> list[Shortlist]:
    """Cells of docids for every m, their lists cut to every r (0: whole), for every k, or those that `fit` tries."""
    found = []
    for m in ms or [0]:
        made = cells_of_docids(model, data, ShortlistSettings(m=m), progress=progress)
        tried = ks or [round(share * made.k) for share in SHARES_OF_LISTS]
        for r in rs or [0]:
            cut = made.cut(r, made.k) if r else made
            found += [cut.take(k) for k in sorted({min(max(1, k), len(made.c)) for k in tried})]
    return found


def _needed(data: TrainingData, relevant: Sequence[set[str]]) -> list[np.ndarray[Any, Any]]:
    """The tokens of all docids of each query's relevant documents."""
    number = {doc_id: i for i, doc_id in enumerate(data.doc_ids)}
    order = np.argsort(data.pair_document, kind="stable")
    documents, docids = data.pair_document[order], data.pair_docid[order]
    out = []
    for wanted in relevant:
        found = [number[doc_id] for doc_id in wanted if doc_id in number]
        rows = [docids[np.searchsorted(documents, d) : np.searchsorted(documents, d, side="right")] for d in found]
        out.append(np.unique(data.rows(np.concatenate(rows), 64)[0]) if rows else np.zeros(0, np.int64))
    return out
