"""Texts a second: the encoder by torch beside onnxruntime in fp32 and 8 bits, and what 8 bits cost in dense retrieval.

``python -m pixnar.benchmarks.text_vectors --json FILE``. All ways encode the same docids of a corpus (the demo corpus
unless another is given) in turns, several rounds; the best round counts. Tokenising is included, exporting is not. Then
docids and dev queries are encoded in every precision, and MRR@10 of dense retrieval over docids is compared.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from pixnar.base.storage import atomic_write
from pixnar.corpus import open_corpus, write_demo
from pixnar.evaluation.latency import environment
from pixnar.evaluation.measures import mrr_at
from pixnar.evaluation.queries import read_queries
from pixnar.fusion.vectors import DocidVectors
from pixnar.model.encoder import MINILM, Encoder
from pixnar.model.export import exported
from pixnar.model.features import FeatureCache
from pixnar.runtime.encoder_folder import FP32, INT8, INT8_BLOCKS
from pixnar.train.data import read_inputs

TORCH = "torch"
PRECISIONS = (FP32, INT8, INT8_BLOCKS)


def run(
    corpus: str | None = None,
    *,
    encoder: str = MINILM,
    texts: int = 2000,
    threads: Sequence[int] = (1, 2),
    rounds: int = 3,
    quality: bool = True,
    out: Path | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Measure rates and, unless told otherwise, quality; print them and write them to `out`."""
    console = console or Console()
    results: dict[str, Any] = {"environment": environment("torch", "onnxruntime", "tokenizers"), "encoder": encoder}
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        if corpus is None:
            write_demo(home / "corpus")
        source = corpus or str(home / "corpus")
        loaded = Encoder.load(encoder)
        docids = read_inputs(open_corpus(source)).docids
        chosen = [docids[int(i)] for i in np.sort(np.random.default_rng(0).permutation(len(docids))[:texts])]
        results |= {"corpus": corpus or "demo", "texts": len(chosen), "rounds": rounds}
        results["pieces_per_text"] = float(np.mean([len(row) for row in loaded.pieces(chosen)]))
        results["rates"] = _rates(loaded, chosen, threads, rounds, home / "graphs")
        console.print(_table(results))
        if quality:
            results["dense_dev_mrr10"] = _quality(source, loaded, home / "features")
            console.print(results["dense_dev_mrr10"])
    if out:
        with atomic_write(out) as file:
            file.write(json.dumps(results, indent=1).encode() + b"\n")
    return results


def _rates(
    encoder: Encoder, texts: list[str], threads: Sequence[int], rounds: int, folder: Path
) -> list[dict[str, Any]]:
    folder.mkdir()
    graphs = {precision: exported(encoder, folder, precision) for precision in PRECISIONS}
    exact = encoder.embed(texts)
    before, rows = torch.get_num_threads(), []
    for count in threads:
        ways: dict[str, Callable[[], Any]] = {TORCH: partial(encoder.embed, texts)}
        ways |= {name: partial(graph.bulk, texts, threads=count) for name, graph in graphs.items()}
        torch.set_num_threads(count)
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, work in ways.items():
                began = time.perf_counter(), time.process_time()
                made = work()
                times[name].append((time.perf_counter() - began[0], time.process_time() - began[1]))
                if len(times[name]) == rounds:
                    wall, cpu = min(times[name])[0], min(spent for _, spent in times[name])
                    rows.append(
                        {
                            "way": name,
                            "threads": count,
                            "texts_per_second": len(texts) / wall,
                            "texts_per_cpu_second": len(texts) / cpu,
                            "mean_cosine_to_torch": float((made * exact).sum(1).mean()),
                        }
                    )
    torch.set_num_threads(before)
    return rows


def _quality(corpus: str, encoder: Encoder, folder: Path) -> dict[str, float]:
    """MRR@10 of dense retrieval over all docids, all dev queries."""
    source = open_corpus(corpus)
    names, dev = read_inputs(source), read_queries(source, "dev")
    figures: dict[str, float] = {"queries": len(dev), "docids": len(names.docids)}
    for precision in PRECISIONS:
        features = FeatureCache(encoder, folder, precision=precision)
        docids, queries = features.vectors(names.docids), features.vectors(dev.texts)
        index = DocidVectors.build(docids, names.pair_docid, names.pair_document, len(names.doc_ids))
        found, _ = index.search(queries, 10)
        figures[precision] = mrr_at([[names.doc_ids[i] for i in row] for row in found], dev.relevant, 10)
    return figures


def _table(results: dict[str, Any]) -> Table:
    title = f"{results['texts']:,} texts of {results['pieces_per_text']:.1f} word pieces, best of {results['rounds']}"
    table = Table("way", "threads", "texts/s", "times torch", "texts/CPU s", "cosine to torch", title=title)
    base = {row["threads"]: row["texts_per_second"] for row in results["rates"] if row["way"] == TORCH}
    for row in results["rates"]:
        rate = row["texts_per_second"]
        cells = (f"{rate:,.0f}", f"{rate / base[row['threads']]:.1f}", f"{row['texts_per_cpu_second']:,.0f}")
        table.add_row(row["way"], str(row["threads"]), *cells, f"{row['mean_cosine_to_torch']:.4f}")
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--corpus", help="a corpus folder; without it the demo corpus is written and used")
    parser.add_argument("--encoder", default=MINILM)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-quality", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    run(
        given.corpus,
        encoder=given.encoder,
        texts=given.texts,
        threads=[int(count) for count in given.threads.split(",")],
        rounds=given.rounds,
        quality=not given.no_quality,
        out=given.json,
    )
