"""Whole searches: where the time goes, how many a second, and what one would use instead, on the same queries.

Behind ``pixnar bench search``. All systems answer one query before the next one comes, so that whatever else the
machine does meets them all alike; a query's time is the best of its repeats.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from pixnar.base.errors import CorpusError
from pixnar.cli.common import JsonFile, write_json
from pixnar.corpus import Corpus, open_corpus
from pixnar.evaluation.baselines import Bm25Retriever, DenseRetriever, entries
from pixnar.evaluation.baselines.dense import FLAT, HNSW
from pixnar.evaluation.baselines.entries import Entries
from pixnar.evaluation.latency import environment, resident_mb
from pixnar.evaluation.measures import mrr_at
from pixnar.evaluation.queries import read_queries
from pixnar.index import Index
from pixnar.runtime import HeadRows
from pixnar.scoring import Priors
from pixnar.search import Retriever
from pixnar.search.query import QueryScorer
from pixnar.vocab import normalize

Floats = NDArray[np.float32]
Search = Callable[[str], list[str]]  # the ids of the best documents
CLOVER_ROWS = 128_000  # of the paper's word-piece vocabulary
STAGES = ("spelling", "tokenise", "encode", "shortlist", "score", "decode", "sources", "fuse", "map")
PIXNAR = "pixnar"
_POINTS = {"p50": (50, 1), "p99": (99, 100), "p99.9": (99.9, 1000)}  # and of how many values it means something


def run(
    index: Annotated[Path, typer.Argument(help="Index to measure.")],
    corpus: Annotated[str, typer.Argument(help="Its corpus, with a dev split.")],
    wordpiece: Annotated[
        Path | None, typer.Option(help="An index with word-piece targets (vocab.kind = wordpiece) to compare with.")
    ] = None,
    queries: Annotated[int, typer.Option(help="Dev queries.", min=1)] = 1000,
    repeats: Annotated[int, typer.Option(help="Times every query is asked; its best time counts.", min=1)] = 2,
    k: Annotated[int, typer.Option("-k", help="Documents wanted.", min=1)] = 10,
    seconds: Annotated[float, typer.Option(help="Seconds for each number of callers.", min=0.1)] = 3.0,
    rivals: Annotated[bool, typer.Option(help="Also BM25 (bm25s) and dense retrieval (faiss).")] = True,
    json_file: JsonFile = None,
) -> dict[str, Any]:
    """Whole searches: where the time goes, queries a second, memory, and baselines.

    [bold]pixnar bench search INDEX CORPUS --wordpiece INDEX2 --json search.json[/bold]
    """
    console = Console()
    opened, source = Index.load(index, threads=1, warm_up=True), open_corpus(corpus)
    dev = read_queries(source, "dev", queries)
    if not len(dev):
        raise CorpusError(f"{source.name} has no dev split: give a corpus with judged queries")
    systems: dict[str, Search] = {
        PIXNAR: lambda text: [hit.id for hit in opened.search(text, k)],
        "pixnar, docids alone": _docids_only(opened, k),
    }
    for text in dev.texts[:100]:
        systems[PIXNAR](text)
    facts: dict[str, Any] = {"queries": len(dev), "resident_mb": round(resident_mb(), 1), "k": k}
    facts |= {"tokens": opened.rows.count - 1, "slots": opened.ranker.scorer.slots}
    facts |= {"encoder": opened.manifest["facts"].get("served", {}).get("encoder")}
    if wordpiece is not None:
        clover = Index.load(wordpiece, threads=1, warm_up=True)
        rows = max(CLOVER_ROWS, clover.rows.count)
        facts |= {"word-piece slots": clover.ranker.scorer.slots, "word-piece rows": rows}
        systems[f"word-pieces, all of {rows:,} rows"] = _clover(clover, rows, k)
    if rivals:
        console.print("indexing for BM25 and dense retrieval")
        systems |= _rivals(opened, source, k)
    times, found = _times(systems, dev.texts, repeats)
    quality = {name: mrr_at(answers, dev.relevant, 10) for name, answers in found.items()}
    results = {
        "environment": environment("numpy", "onnxruntime", "bm25s", "faiss-cpu"),
        "facts": facts,
        "mrr10": quality,
        "latency_ms": times,
        "stages_us": _stages(opened, dev.texts, repeats, k),
        "queries_per_second": {
            callers: _rate(systems[PIXNAR], dev.texts, callers, seconds) for callers in (1, 2, 4, 8, 16)
        },
    }
    write_json(json_file, results)
    _show(console, results)
    return results


def _docids_only(index: Index, k: int) -> Search:
    """The ranker alone: what the model and its docids find, nothing fused."""
    ranker = index.ranker

    def search(text: str) -> list[str]:
        normal = normalize(text)
        query = ranker.queries([normal], *index.encoder.query_vectors([normal]))[0]
        return [hit.doc_id for hit in ranker.decode(ranker.scored(query), k)]

    return search


def _clover(index: Index, rows: int, k: int) -> Search:
    """A word-piece model as CLOVERv2 is: every row scored at every slot, with as many rows as the paper's.

    Rows that are missing are put before the end of a docid, so unlikely that none is ever named.
    """
    old, head = index.ranker.scorer, index.rows
    missing = rows - head.count
    more = 1e-3 * np.random.default_rng(0).standard_normal((missing, head.dim)).astype(np.float32)
    dense = head.decoded(slice(None))
    bias = np.zeros(head.count, np.float32) if head.bias is None else head.bias
    unlikely = np.full(missing, -1e6, np.float32)
    padded = HeadRows.build(
        np.concatenate([dense[:-1], more, dense[-1:]]), np.concatenate([bias[:-1], unlikely, bias[-1:]])
    )
    priors = Priors(np.append(old.priors.tokens, np.full(missing, -20, np.float32)), old.priors.ends)
    rule = old.rule.with_(score="probability", order="slots", floor="zero", copy=0.0)
    scorer = QueryScorer(padded, old.log_z, priors, rule)
    ranker = index.ranker.with_scorer(old.with_rule(rule))  # the decoder knows the table's tokens only

    def search(text: str) -> list[str]:
        x, _ = index.encoder.query_vectors([normalize(text)])
        return [hit.doc_id for hit in ranker.decode(scorer.one(x[0], np.zeros(0, np.uint32)), k)]

    return search


def _rivals(index: Index, source: Corpus, k: int) -> dict[str, Search]:
    """BM25 by bm25s over docids and over text, and the same encoder's vectors of docids in faiss."""
    rivals: dict[str, Retriever] = {
        "BM25 over docids (bm25s)": Bm25Retriever.build(source, entries.DOCIDS),
        "BM25 over text (bm25s)": Bm25Retriever.build(source, entries.TEXT),
    }
    named, vectors = _vectors(index, source)
    for name, kind in (("dense, faiss flat", FLAT), ("dense, faiss HNSW", HNSW)):
        rivals[name] = DenseRetriever.over(named, vectors, index.encoder, kind=kind)
    return {name: partial(_doc_ids, rival, k) for name, rival in rivals.items()}


def _doc_ids(rival: Retriever, k: int, text: str) -> list[str]:
    return [hit.id for hit in rival.search(text, k)]


def _vectors(index: Index, source: Corpus) -> tuple[Entries, Floats]:
    """All docids and their vectors: those of the index, or, if it fuses none, made now."""
    vectors, snapshot = index.ranker.vectors, index.table.snapshot()
    if vectors is None:
        named, texts = Entries.read(source, entries.DOCIDS)
        return named, index.encoder.query_vectors(texts)[1]
    owners: list[set[str]] = [set() for _ in vectors.matrix]
    doc_ids = snapshot.doc_ids(snapshot.numbering.numbers(np.arange(vectors.n_documents)).tolist())
    for doc_id, (begin, end) in zip(doc_ids, pairwise(vectors.offsets.tolist()), strict=True):
        for row in vectors.rows[begin:end].tolist():
            owners[row].add(doc_id)
    return Entries.of([""] * len(owners), owners), vectors.matrix.astype(np.float32)


def _times(
    systems: dict[str, Search], texts: Sequence[str], repeats: int
) -> tuple[dict[str, dict[str, Any]], dict[str, list[list[str]]]]:
    """Latencies, and what was found."""
    best = np.full((len(systems), len(texts)), np.inf)
    found: dict[str, list[list[str]]] = {name: [] for name in systems}
    for search in systems.values():
        search(texts[0])
    for turn in range(repeats):
        for j, text in enumerate(texts):
            for i, (name, search) in enumerate(systems.items()):
                began = time.perf_counter()
                answer = search(text)
                best[i, j] = min(best[i, j], (time.perf_counter() - began) * 1e3)
                if turn == 0:
                    found[name].append(answer)
    return {name: _spread(row) for name, row in zip(systems, best, strict=True)}, found


def _stages(index: Index, texts: Sequence[str], repeats: int, k: int) -> dict[str, dict[str, float]]:
    spent: dict[str, list[float]] = {}
    for text in texts:
        runs = [index.searcher.stage_times(text, k) for _ in range(repeats)]
        best = min(runs, key=lambda one: sum(one.values()))
        for stage, value in best.items():
            spent.setdefault(stage, []).append(value)
    return {stage: _spread(np.array(spent[stage])) for stage in STAGES if stage in spent}


def _spread(values: NDArray[np.float64]) -> dict[str, Any]:
    """Mean and percentiles; None where there are too few values for one."""
    points = {name: float(np.percentile(values, at)) if len(values) >= n else None for name, (at, n) in _POINTS.items()}
    return {"mean": float(values.mean())} | points


def _rate(search: Search, texts: Sequence[str], callers: int, seconds: float) -> float:
    """Answers a second when so many ask at once."""
    done = [0] * callers
    stop = time.perf_counter() + seconds

    def ask(caller: int) -> None:
        while time.perf_counter() < stop:
            search(texts[(caller * 37 + done[caller]) % len(texts)])
            done[caller] += 1

    threads = [threading.Thread(target=ask, args=(caller,)) for caller in range(callers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - began)


def _show(console: Console, results: dict[str, Any]) -> None:
    table = Table("system", "dev MRR@10", "mean ms", *_POINTS, title="one query at a time")
    for name, row in results["latency_ms"].items():
        table.add_row(name, f"{results['mrr10'][name]:.3f}", *_shown(row, 2))
    console.print(table)
    table = Table("stage", "mean µs", *_POINTS, title="where pixnar's time goes")
    for name, row in results["stages_us"].items():
        table.add_row(name, *_shown(row, 0))
    console.print(table)
    rates = ", ".join(f"{callers} callers: {rate:.0f}" for callers, rate in results["queries_per_second"].items())
    console.print(f"queries a second, {rates}; {results['facts']['resident_mb']:.0f} MB resident")


def _shown(row: dict[str, Any], digits: int) -> list[str]:
    return ["–" if row[key] is None else f"{row[key]:.{digits}f}" for key in ("mean", *_POINTS)]
