"""Whole searches: where the time goes, how many a second, and what one would use instead, on the same queries.

Behind ``pixnar bench search``. All systems answer one query before the next one comes, so that whatever else the
machine does meets them all alike; a query's time is the best of its repeats.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from pixnar.corpus import open_corpus
from pixnar.errors import MissingExtraError
from pixnar.evaluate.queries import read_queries
from pixnar.head import HeadRows
from pixnar.index import Index
from pixnar.index.explain import staged
from pixnar.index.retriever import EVERYTHING
from pixnar.search import SlotScores
from pixnar.softmax import Full
from pixnar.storage import atomic_write
from pixnar.vocab import normalize

from .environment import environment

Floats = NDArray[np.float32]
Search = Callable[[str], Any]
CLOVER_ROWS = 128_000  # of the paper's word-piece vocabulary
STAGES = ("tokenise", "encode", "shortlist", "score", "decode", "evidence", "fuse", "map")


def run(
    folder: str,
    corpus: str,
    *,
    wordpiece: str | None = None,
    queries: int = 300,
    repeats: int = 3,
    k: int = 10,
    seconds: float = 3.0,
    rivals: bool = True,
    out: Path | None = None,
) -> dict[str, Any]:
    """Measure an index on dev queries, beside a word-piece index, BM25 and dense retrieval."""
    console = Console()
    index, source = Index.load(folder, threads=1), open_corpus(corpus)
    texts = read_queries(source, "dev", queries).texts
    resident = _resident()
    systems: dict[str, Search] = {"pixnar": lambda text: index.search(text, k)}
    docids_only = _docids_only(index, k)
    systems["pixnar, docids alone"] = docids_only
    facts: dict[str, Any] = {"queries": len(texts), "resident_mb": resident, "k": k}
    facts |= {"tokens": index.retriever.scorer.head.count - 1, "slots": index.retriever.scorer.slots}
    if wordpiece is not None:
        clover = Index.load(wordpiece, threads=1)
        facts["word-piece slots"] = clover.retriever.scorer.slots
        systems["word-pieces, full softmax over 128 K"] = _clover(clover, k)
    if rivals:
        console.print("indexing for BM25 and dense retrieval")
        systems |= _rivals(index, source, k)
    times = _times(systems, texts, repeats)
    stages = _stages(index, texts, repeats, k)
    rates = {callers: _rate(systems["pixnar"], texts, callers, seconds) for callers in (1, 2, 4, 8, 16)}
    results = {
        "environment": environment("numpy", "onnxruntime", "bm25s", "faiss-cpu"),
        "facts": facts,
        "latency_ms": times,
        "stages_us": stages,
        "queries_per_second": rates,
    }
    if out:
        with atomic_write(out) as file:
            file.write(json.dumps(results, indent=1).encode() + b"\n")
    _show(console, results)
    return results


def _docids_only(index: Index, k: int) -> Search:
    """The engine alone: what the model and its docids find, nothing fused."""
    retriever = index.retriever

    def search(text: str) -> Any:
        normal = normalize(text)
        query = retriever.queries([normal], *index.encoder.query_vectors([normal]))[0]
        return retriever.decode(retriever.scored(query), k)

    return search


def _clover(index: Index, k: int) -> Search:
    """A word-piece model as CLOVERv2 is: every row scored at every slot, with as many rows as the paper's."""
    retriever = index.retriever
    scorer = retriever.scorer
    rows = index.rows
    missing = max(0, CLOVER_ROWS - rows.count)
    more = np.random.default_rng(0).standard_normal((missing, rows.dim)).astype(np.float32)
    bias = np.zeros(rows.count, np.float32) if rows.bias is None else rows.bias
    padded = HeadRows.build(
        np.concatenate([rows.decoded(slice(None)), more * 1e-3]),
        np.concatenate([bias, np.full(missing, -1e6, np.float32)]),
    )
    full = Full(padded)
    end, priors, log_z = rows.count - 1, scorer.priors.tokens, scorer.log_z
    rule = scorer.rule

    def search(text: str) -> Any:
        x, _ = index.encoder.query_vectors([normalize(text)])
        slots = []
        for t, (ids, logits) in enumerate(full.top(x, 100)):
            kept = ids < end
            ids, logits = ids[kept], logits[kept]
            slots.append((ids, (logits - log_z[t + 1] - rule.prior_weight * priors[ids]) * rule.scale))
        scores = SlotScores.sparse(slots, np.zeros(len(slots), np.float32))
        return retriever.decode(scores, k)

    return search


def _rivals(index: Index, source: Any, k: int) -> dict[str, Search]:
    """BM25 by bm25s over docids and over text, and the same encoder's vectors of docids in faiss."""
    try:
        import bm25s
        import faiss
    except ImportError as error:
        raise MissingExtraError("comparing with BM25 and dense retrieval", "baselines") from error
    rows = list(source.docids())
    docids = [normalize(row.docid) for row in rows]
    systems: dict[str, Search] = {}
    for name, texts in (("BM25 over docids (bm25s)", docids), ("BM25 over text (bm25s)", _texts(source))):
        bm25 = bm25s.BM25()
        bm25.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)

        def search(text: str, bm25: Any = bm25) -> Any:
            tokens = bm25s.tokenize([normalize(text)], show_progress=False, return_ids=False)
            return bm25.retrieve(tokens, k=k, show_progress=False)

        systems[name] = search
    vectors = index.retriever.vectors
    matrix = vectors.matrix if vectors is not None else index.encoder.query_vectors(docids)[1]
    faiss.omp_set_num_threads(1)
    flat = faiss.IndexFlatIP(matrix.shape[1])
    near = faiss.IndexHNSWFlat(matrix.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    for name, made in (("dense, faiss flat", flat), ("dense, faiss HNSW", near)):
        for begin in range(0, len(matrix), 65_536):
            made.add(matrix[begin : begin + 65_536].astype(np.float32))

        def dense(text: str, made: Any = made) -> Any:
            return made.search(index.encoder.query_vectors([normalize(text)])[1], 10 * k)

        systems[name] = dense
    return systems


def _texts(source: Any) -> list[str]:
    return [normalize(f"{document.title} {document.text}") for document in source.documents()]


def _times(systems: dict[str, Search], texts: Sequence[str], repeats: int) -> dict[str, dict[str, float]]:
    best = np.full((len(systems), len(texts)), np.inf)
    for search in systems.values():
        search(texts[0])
    for _ in range(repeats):
        for j, text in enumerate(texts):
            for i, search in enumerate(systems.values()):
                began = time.perf_counter()
                search(text)
                best[i, j] = min(best[i, j], (time.perf_counter() - began) * 1e3)
    return {name: _spread(row) for name, row in zip(systems, best, strict=True)}


def _stages(index: Index, texts: Sequence[str], repeats: int, k: int) -> dict[str, dict[str, float]]:
    spent: dict[str, list[float]] = {}
    for text in texts:
        runs = [staged(index, text, k, EVERYTHING)[3] for _ in range(repeats)]
        best = min(runs, key=lambda one: sum(one.values()))
        for stage, value in best.items():
            spent.setdefault(stage, []).append(value)
    return {stage: _spread(np.array(spent[stage])) for stage in STAGES if stage in spent}


def _spread(values: NDArray[np.float64]) -> dict[str, float]:
    points = {"p50": 50, "p99": 99, "p99.9": 99.9}
    return {"mean": float(values.mean())} | {name: float(np.percentile(values, at)) for name, at in points.items()}


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


def _resident() -> float:
    """Memory of this process in megabytes, mapped pages that were touched included."""
    for line in Path("/proc/self/status").read_text().splitlines() if Path("/proc/self/status").exists() else ():
        if line.startswith("VmRSS"):
            return round(int(line.split()[1]) / 1024, 1)
    return float("nan")


def _show(console: Console, results: dict[str, Any]) -> None:
    table = Table("system", "mean ms", "p50", "p99", "p99.9", title="latency, one query at a time")
    for name, row in results["latency_ms"].items():
        table.add_row(name, *(f"{row[key]:.2f}" for key in ("mean", "p50", "p99", "p99.9")))
    console.print(table)
    table = Table("stage", "mean µs", "p50", "p99", title="where pixnar's time goes")
    for name, row in results["stages_us"].items():
        table.add_row(name, *(f"{row[key]:.0f}" for key in ("mean", "p50", "p99")))
    console.print(table)
    rates = ", ".join(f"{callers} callers: {rate:.0f}" for callers, rate in results["queries_per_second"].items())
    console.print(f"queries a second, {rates}; {results['facts']['resident_mb']:.0f} MB resident")
