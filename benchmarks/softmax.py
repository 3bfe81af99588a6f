"""Table 4: six ways to the best tokens of every slot, side by side. Behind ``pixnar bench softmax``.

On a trained index: dev quality of the documents found, and latency. On synthetic heads of any size: latency and memory,
and how much of the full softmax's answer each way finds; there lists are made from the groups that rows were drawn
from, so that what lists find is no result, only a check. All methods answer the same query before the next one comes,
so that whatever else the machine does meets them all; a query's time is the best of its repeats.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from pixnar.base.errors import CorpusError, MissingExtraError
from pixnar.base.storage import atomic_write
from pixnar.cli.common import JsonFile, numbers, write_json
from pixnar.corpus import open_corpus
from pixnar.evaluation.latency import environment
from pixnar.evaluation.measures import summary
from pixnar.evaluation.queries import read_queries
from pixnar.index import Index
from pixnar.research.reproduce.tokens import KEEP, ByMethod, measured, methods_of
from pixnar.research.softmax import (
    Full,
    LearnedShortlist,
    PerSlotLists,
    Softmax,
    int4_preview,
    low_rank_preview,
    main_directions,
)

from .softmax_synthetic import SyntheticHead


def run(
    index: Annotated[Path | None, typer.Option(help="A trained index, for quality; needs --corpus.")] = None,
    corpus: Annotated[str | None, typer.Option(help="The corpus of the index: its dev split judges.")] = None,
    tokens: Annotated[Sequence[int], numbers('Sizes of synthetic heads, separated by commas; "": none.')] = (
        128_000,
        1_000_000,
    ),
    widths: Annotated[Sequence[int], numbers("Numbers per row of synthetic heads, separated by commas.")] = (384,),
    best: Annotated[int, typer.Option(help="Best tokens wanted in each slot.", min=1)] = 1000,
    queries: Annotated[int, typer.Option(help="Queries.", min=1)] = 100,
    slots: Annotated[int, typer.Option(help="Slots of a query of a synthetic head.", min=1, max=32)] = 8,
    repeats: Annotated[int, typer.Option(help="Times every query is asked; its best time counts.", min=1)] = 3,
    seed: Annotated[int, typer.Option(help="Of synthetic heads and of clusters.")] = 0,
    m: Annotated[int, typer.Option(help="Lists of a synthetic shortlist.", min=1)] = 4096,
    r: Annotated[int, typer.Option(help="Tokens of such a list.", min=1)] = 20_000,
    k: Annotated[int, typer.Option("--k", help="Lists that a query takes.", min=1)] = 5,
    json_file: JsonFile = None,
    plot: Annotated[Path | None, typer.Option(help="Draw quality or agreement against latency to this PNG.")] = None,
) -> dict[str, Any]:
    """The paper's Table 4: full softmax, SVD-softmax, HiRE, clusters and the learned shortlist.

    [bold]pixnar bench softmax --index INDEX --corpus CORPUS --tokens ""[/bold]  quality and latency of a trained index

    [bold]pixnar bench softmax --tokens 5e6 --widths 768[/bold]  latency and memory, as large as the paper's
    """
    if (index is None) != (corpus is None):
        raise typer.BadParameter("--index and --corpus belong together: give both, or neither")
    console = Console()
    results: dict[str, Any] = {"environment": environment("numpy"), "best": best, "indexes": {}, "synthetic": {}}

    def keep(part: str, name: str, rows: dict[str, Any]) -> None:
        results[part][name] = rows
        console.print(_table(name, rows["methods"]))
        write_json(json_file, results)

    if index is not None and corpus is not None:
        keep("indexes", index.name, trained(str(index), corpus, best, queries, repeats, seed, console.print))
    for size, width in itertools.product(tokens, widths):
        name = f"{size:,} x {width}"
        rows = synthetic(size, width, best, queries, slots, repeats, seed, (m, r, k), console.print)
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
    index, source = Index.load(folder), open_corpus(corpus)
    methods = methods_of(index, [row.docid for row in source.docids()], best=best, seed=seed, say=say)
    dev = read_queries(source, "dev", queries)
    if not len(dev):
        raise CorpusError(f"{source.name} has no dev split: quality needs judged queries")
    x, _ = index.encoder.query_vectors(dev.texts)
    figures = measured(methods, x, best, repeats, say)
    for method in methods:
        found = ByMethod(index, method, best).search_batch(dev.texts, 100)
        run = {one: [hit.id for hit in hits] for one, hits in zip(dev.ids, found, strict=True)}
        quality = summary(run, dev.qrels)
        figures[method.name] |= {name: quality[name] for name in ("MRR@10", "R@100")}
    shortlist, rows = index.ranker.shortlist, index.rows
    assert shortlist is not None  # `methods_of` has said so
    facts = {"tokens": rows.count - 1, "width": rows.dim, "slots": x.shape[1] - 1, "queries": len(dev)}
    facts |= {"m": len(shortlist.c), "r": round(shortlist.mean_length), "k": shortlist.k}
    return {"facts": facts | {"union": figures[methods[-1].name]["scored"]}, "methods": figures}


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
