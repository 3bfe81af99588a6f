"""Sweeping the shortlist of an index: m, r and k against recall of needed tokens and MRR@10 on dev."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pixnar.base.errors import CorpusError
from pixnar.base.progress import Progress
from pixnar.corpus import open_corpus
from pixnar.evaluation.queries import read_queries
from pixnar.index import Index
from pixnar.index.on_device import model_of
from pixnar.model.features import FeatureCache
from pixnar.model.nar import Nar
from pixnar.pipeline.choices import SHARES_OF_LISTS
from pixnar.pipeline.run import default_cache
from pixnar.pipeline.shortlist import cells_of_docids, examples, standardised
from pixnar.pipeline.shortlist_sweep import CELLS, KMEANS, LEARNED, Chooser, Row, sweep, table
from pixnar.pipeline.shortlist_sweep import plot as draw
from pixnar.pipeline.tune import docid_mrr
from pixnar.recipe import ShortlistSettings
from pixnar.runtime.encoder_folder import FP32
from pixnar.runtime.shortlist import Shortlist, defaults
from pixnar.train.data import TrainingData
from pixnar.train.shortlist_learning import Options, learn, start

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
