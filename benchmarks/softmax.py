"""Table 4: six ways to the best tokens of every slot, side by side. Behind ``pixnar bench softmax``.

On a trained index: dev quality of the documents found, and latency. On synthetic heads of any size: latency and memory,
and how much of the full softmax's answer each way finds; there lists are made from the groups that rows were drawn
from, so that what lists find is no result, only a check. All methods answer the same query before the next one comes,
so that whatever else the machine does meets them all; a query's time is the best of its repeats.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from pixnar.corpus import open_corpus
from pixnar.errors import CorpusError, MissingExtraError, PixnarError
from pixnar.evaluate.metrics import summary
from pixnar.evaluate.queries import read_queries
from pixnar.index import Index
from pixnar.scoring import ScoreRule, token_scores
from pixnar.search import SlotScores
from pixnar.softmax import (
    Full,
    LearnedShortlist,
    PerSlotLists,
    Softmax,
    Top,
    active_lists,
    centroid_lists,
    int4_preview,
    low_rank_preview,
    main_directions,
)
from pixnar.storage import atomic_write

from .environment import environment
from .softmax_synthetic import SyntheticHead

Floats = NDArray[np.float32]
KEEP = 2048  # tokens that SVD-softmax's preview proposes for a slot
_STATES = 60_000  # hidden states of docids that clusters are made of
_DOCIDS = 8_000  # which they are drawn from
_BATCH = 32


def run(
    indexes: Sequence[tuple[str, str]],
    sizes: Sequence[tuple[int, int]],
    *,
    best: int = 1000,
    queries: int = 200,
    slots: int = 8,
    repeats: int = 3,
    seed: int = 0,
    m: int = 4096,
    r: int = 20_000,
    k: int = 5,
    out: Path | None = None,
    plot: Path | None = None,
) -> dict[str, Any]:
    """Measure on trained indexes (folder, corpus) and on synthetic heads (tokens, width)."""
    console = Console()
    results: dict[str, Any] = {"environment": environment("numpy"), "best": best, "indexes": {}, "synthetic": {}}

    def keep(part: str, name: str, rows: dict[str, Any]) -> None:
        results[part][name] = rows
        console.print(_table(name, rows["methods"]))
        if out:
            with atomic_write(out) as file:
                file.write(json.dumps(results, indent=1).encode() + b"\n")

    for folder, corpus in indexes:
        keep("indexes", Path(folder).name, trained(folder, corpus, best, queries, repeats, seed, console.print))
    for tokens, width in sizes:
        name = f"{tokens:,} x {width}"
        rows = synthetic(tokens, width, best, queries, slots, repeats, seed, (m, r, k), console.print)
        keep("synthetic", name, rows)
    if plot:
        draw(results["indexes"] | results["synthetic"], plot)
    return results


def draw(parts: dict[str, Any], path: Path) -> None:
    """Quality (of an index) or agreement (of a synthetic head) against latency, a picture for each."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("a plot", "plot") from error
    figure = Figure(figsize=(5.5 * len(parts), 4.2), layout="constrained")
    for axis, (name, part) in zip(figure.subplots(1, len(parts), squeeze=False)[0], parts.items(), strict=True):
        for label, row in part["methods"].items():
            value = row.get("MRR@10", row["found_of_top_10"])
            axis.plot(row["ms"]["mean"], value, "o", ms=6)
            axis.plot([row["ms"]["mean"], row["ms"]["p99"]], [value, value], lw=1, color="grey", zorder=0)
            axis.annotate(label, (row["ms"]["mean"], value), xytext=(4, 5), textcoords="offset points", fontsize=7)
        judged = any("MRR@10" in row for row in part["methods"].values())
        what = "dev MRR@10" if judged else "share of the full softmax's ten best (lists know the groups)"
        axis.set(xscale="log", xlabel="ms a query, mean to p99", ylabel=what, title=name)
        axis.spines[["top", "right"]].set_visible(False)
    with atomic_write(path) as file:
        figure.savefig(file, dpi=150, format="png")


def trained(
    folder: str, corpus: str, best: int, queries: int, repeats: int, seed: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Quality and latency of every method on an index."""
    from pixnar.shortlist.kmeans import kmeans

    index, source = Index.load(folder), open_corpus(corpus)
    engine = index.engine
    if engine.shortlist is None:
        raise PixnarError(f"{folder} has no shortlist to compare: build it with shortlist.learn = true")
    dev = read_queries(source, "dev", queries)
    if not len(dev):
        raise CorpusError(f"{source.name} has no dev split: quality needs judged queries")
    rows, shortlist = index.rows, engine.shortlist
    x, _ = index.encoder.query_vectors(dev.texts)
    docids = [row.docid for row in source.docids()]
    some = np.random.default_rng(seed).choice(len(docids), min(len(docids), _DOCIDS), replace=False)
    say(f"hidden states of {len(some):,} docids")
    states = index.encoder.query_vectors([docids[i] for i in some])[0][:, 1:].reshape(-1, rows.dim)
    states = states[np.random.default_rng(seed).permutation(len(states))[:_STATES]]
    centres = kmeans(states, min(len(shortlist.c), len(states) // 8), seed=seed).numpy()
    share, directions = shortlist.lists.shape[1], main_directions(rows)
    learned = LearnedShortlist(rows, shortlist)
    union = learned.scored(x[:100])
    methods: list[Softmax] = [
        Full(rows),
        low_rank_preview(rows, rows.dim // 8, KEEP, "SVD-softmax", directions),
        low_rank_preview(rows, rows.dim // 4, 2 * best, "HiRE, low rank", directions),
        int4_preview(rows, 2 * best),
        centroid_lists(rows, centres, round(union)),  # as many tokens a slot as the shortlist has
        active_lists(rows, centres, states, max(64, share // 8)),
        learned,
    ]
    rule = engine.scorer.rule.with_(order="any", normalize=False)
    own = [np.sort(engine.ngrams.of(text)) for text in dev.texts]
    by_slots = engine.with_scorer(engine.scorer.with_rule(rule))
    figures = measured(methods, x, best, repeats, say)
    for method in methods:
        tops = [method.top(one[None], best) for one in x]
        scores = [
            _slot_scores(top, vectors, grams, by_slots, rule) for top, vectors, grams in zip(tops, x, own, strict=True)
        ]
        found = by_slots.spread(lambda one: [hit.doc_id for hit in by_slots.decode(one, 100)], scores)
        quality = summary(dict(zip(dev.ids, found, strict=True)), dev.qrels)
        figures[method.name] |= {name: quality[name] for name in ("MRR@10", "R@100")}
    facts = {"tokens": rows.count - 1, "width": rows.dim, "slots": x.shape[1] - 1, "queries": len(dev)}
    facts |= {"m": len(shortlist.c), "r": share, "k": shortlist.k, "union": union, "rule": rule.to_dict()}
    return {"facts": facts, "methods": figures}


def _slot_scores(top: Top, x: Floats, own: NDArray[np.uint32], engine: Any, rule: ScoreRule) -> SlotScores:
    """The best tokens of every slot, and the query's own n-grams, as the decoder takes them."""
    scorer = engine.scorer
    end, priors, log_z = scorer.head.count - 1, scorer.priors.tokens, scorer.log_z
    copied = scorer.head.logits(x[1:], own) if len(own) else np.zeros((len(x) - 1, 0), np.float32)
    slots = []
    for t in range(len(x) - 1):
        ids, first = np.unique(np.concatenate([top[t][0], own]), return_index=True)
        logits = np.concatenate([top[t][1], copied[t]])[first]
        ids, logits = ids[ids != end], logits[ids != end]
        log_copy = np.where(np.isin(ids, own), -np.log(max(1, len(own))), -np.inf).astype(np.float32)
        scores = token_scores(np, logits - log_z[t + 1], log_copy, priors[ids], rule)
        above = scores > (scorer.floors[ids] if scorer.floors is not None else -np.inf)
        slots.append((ids[above], scores[above].astype(np.float32)))
    return SlotScores.sparse(slots, np.zeros(len(slots), np.float32))


def synthetic(
    tokens: int,
    width: int,
    best: int,
    queries: int,
    slots: int,
    repeats: int,
    seed: int,
    sizes: tuple[int, int, int],
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Latency, memory and agreement with the full softmax on a head that was never trained."""
    m, r, k = sizes
    m, r = min(m, max(8, tokens // 64)), min(r, max(64, tokens * 3 // 100))
    say(f"{tokens:,} x {width}: rows")
    head = SyntheticHead.make(tokens, width, m, seed)
    x = head.queries(queries, slots, seed)
    say(f"{tokens:,} x {width}: {m:,} lists of {r:,}")
    shortlist = head.shortlist(r, k)
    learned = LearnedShortlist(head.rows, shortlist, "shortlist, lists of the true groups")
    end = np.full((m, 1), head.rows.count - 1, np.uint32)
    lists = np.hstack([shortlist.lists, end])
    offsets = np.arange(m + 1, dtype=np.int64) * lists.shape[1]
    active = head.active(max(64, r // 8))
    say(f"{tokens:,} x {width}: previews")
    directions = main_directions(head.rows)
    methods: list[Softmax] = [
        Full(head.rows),
        low_rank_preview(head.rows, width // 8, KEEP, "SVD-softmax", directions),
        low_rank_preview(head.rows, width // 4, 2 * best, "HiRE, low rank", directions),
        int4_preview(head.rows, 2 * best),
        PerSlotLists("centroid clustering, true groups", head.rows, active.centres, lists.ravel(), offsets),
        active,
        learned,
    ]
    figures = measured(methods, x, best, repeats, say)
    union = learned.scored(x)
    facts = {"tokens": tokens, "width": width, "slots": slots, "queries": queries, "m": m, "r": r, "k": k}
    return {"facts": facts | {"union": union, "rows_bytes": head.rows.nbytes}, "methods": figures}


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


def _table(name: str, rows: dict[str, dict[str, Any]]) -> Table:
    quality = [key for key in ("MRR@10", "R@100") if key in next(iter(rows.values()))]
    table = Table(
        "method",
        *quality,
        "top 10 found",
        "rows a slot",
        "mean ms",
        "p99 ms",
        "2 threads",
        "batch 32",
        "memory MB",
        title=name,
    )
    for label, row in rows.items():
        table.add_row(
            label,
            *(f"{100 * row[key]:.2f}" for key in quality),
            f"{row['found_of_top_10']:.4f}",
            f"{row['scored']:,.0f}",
            f"{row['ms']['mean']:.2f}",
            f"{row['ms']['p99']:.2f}",
            f"{row['ms_2_threads']['mean']:.2f}",
            f"{row['ms_batch_32']['mean']:.2f}" if "ms_batch_32" in row else "",
            f"{row['memory_mb']:.0f}",
        )
    return table
