"""How time, memory and disk grow: every stage of a build that reads the corpus, against docids, tokens and documents.

Behind ``pixnar bench slopes``. One quantity grows and the others stay; each cell is a process of its own on generated
docids, so that its peak memory is the stage's. From the cells of a stage comes a power law, size^a: 1 is a straight
line, and what is told of sizes that were not measured stands on it.
"""

from __future__ import annotations

import json
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from pixnar.base.storage import atomic_write
from pixnar.cli.common import JsonFile, Threads, numbers, write_json
from pixnar.corpus import open_corpus
from pixnar.evaluation.latency import environment, resident_mb
from pixnar.fusion.lexical import LexicalIndex
from pixnar.table.build import build_table
from pixnar.vocab import Vocabulary, load_vocabulary

from .apart import apart
from .generate import generate_docids

DOCIDS_PER_DOCUMENT = 5
WORDS_OF = 10  # generated docids that make the text of a document
GROWING = {"vocabulary": "docids", "selection": "tokens", "table": "docids", "lexical": "documents"}
_MEASURED = ("seconds", "cpu_seconds", "peak_mb", "disk_mb")

Cell = dict[str, Any]


def run(
    docids: Annotated[Sequence[int], numbers("Numbers of docids, separated by commas.")] = (
        250_000,
        500_000,
        1_000_000,
        2_000_000,
    ),
    tokens: Annotated[Sequence[int], numbers("Sizes of the vocabulary at the most docids.")] = (
        30_000,
        100_000,
        300_000,
    ),
    documents: Annotated[Sequence[int], numbers("Numbers of documents with a text.")] = (50_000, 100_000, 200_000),
    size: Annotated[int, typer.Option(help="Size of the vocabulary elsewhere.", min=512)] = 131_072,
    repeats: Annotated[int, typer.Option(help="Times every cell is measured; the best counts.", min=1)] = 2,
    threads: Threads = 1,
    folder: Annotated[Path | None, typer.Option(help="Keep the generated corpora here and reuse them.")] = None,
    json_file: JsonFile = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the figures and their laws to this PNG.")] = None,
) -> dict[str, Any]:
    """How time, memory and disk of a build grow with docids, tokens and documents.

    [bold]pixnar bench slopes --docids 1e6,2e6,4e6,8e6 --json slopes.json --plot slopes.png[/bold]
    """
    console = Console()
    results: dict[str, Any] = {
        "environment": environment("numpy"),
        "settings": {"size": size, "threads": threads, "repeats": repeats, "docids_per_document": DOCIDS_PER_DOCUMENT},
        "cells": [],
    }
    wanted = [
        *(("vocabulary", _vocabulary, n, size) for n in docids),
        *(("selection", _vocabulary, max(docids), n) for n in tokens),
        *(("table", _table, n, size) for n in docids),
        *(("lexical", _lexical, n * DOCIDS_PER_DOCUMENT, size) for n in documents),
    ]
    with tempfile.TemporaryDirectory() as scratch:
        where = folder or Path(scratch)
        for stage, work, count, most in wanted:
            corpus = where / f"corpus-{count}"
            words = where / f"words-{size}.vocab"
            apart(write_corpus, corpus, count)
            if not words.is_file():
                apart(_vocabulary, corpus, words, size, 0, 2)
            target = words if work is not _vocabulary else where / "measured.vocab"
            console.print(f"{stage}: {count:,} docids, {most:,} tokens …")
            tries = [apart(work, corpus, target, most, threads, 2) for _ in range(repeats)]
            cell: Cell = {"stage": stage, "docids": count, "documents": count // DOCIDS_PER_DOCUMENT}
            cell |= {"tokens": tries[0].get("tokens", most)}
            cell |= {name: min(one[name] for one in tries) for name in _MEASURED if name in tries[0]}
            results["cells"].append(cell)
            results["slopes"] = slopes(results["cells"])
            write_json(json_file, results)
    console.width = max(console.width, 110)
    console.print(as_table(results))
    if plot is not None:
        draw(results, plot)
    return results


def slopes(cells: Sequence[Cell]) -> dict[str, dict[str, dict[str, float]]]:
    """Of every stage and figure the power law through its cells: figure = scale · size^exponent.

    >>> laws = slopes([{"stage": "table", "docids": n, "seconds": 3 * n} for n in (10, 100)])
    >>> {name: round(value, 3) for name, value in laws["table"]["seconds"].items()}
    {'exponent': 1.0, 'scale': 3.0}
    """
    laws: dict[str, dict[str, dict[str, float]]] = {}
    for stage, grown in GROWING.items():
        mine = [cell for cell in cells if cell["stage"] == stage]
        if len({cell[grown] for cell in mine}) < 2:
            continue
        laws[stage] = {}
        for name in _MEASURED:
            if all(cell.get(name) for cell in mine):
                sizes = np.log([cell[grown] for cell in mine])
                exponent, shift = np.polyfit(sizes, np.log([cell[name] for cell in mine]), 1)
                laws[stage][name] = {"exponent": float(exponent), "scale": float(np.exp(shift))}
    return laws


def as_table(results: dict[str, Any]) -> Table:
    """The figures for people."""
    table = Table("stage", "docids", "documents", "tokens", "s", "CPU s", "peak MB", "disk MB", "grows with")
    for cell in results["cells"]:
        law = results["slopes"].get(cell["stage"], {}).get("cpu_seconds")
        table.add_row(
            cell["stage"],
            *(f"{cell[name]:,}" for name in ("docids", "documents", "tokens")),
            *(f"{cell[name]:,.1f}" if name in cell else "" for name in _MEASURED),
            f"{GROWING[cell['stage']]}^{law['exponent']:.2f}" if law else "",
        )
    return table


def draw(results: dict[str, Any], path: Path) -> None:
    """CPU seconds and memory against what grows, with the laws as lines."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4), layout="constrained")
    told = {"cpu_seconds": "CPU seconds", "peak_mb": "peak memory, MB", "disk_mb": "on disk, MB"}
    for axis, (name, label) in zip(axes, told.items(), strict=True):
        for colour, stage in enumerate(GROWING):
            law = results["slopes"].get(stage, {}).get(name)
            cells = [cell for cell in results["cells"] if cell["stage"] == stage and name in cell]
            if law is None or not cells:
                continue
            sizes = np.array([cell[GROWING[stage]] for cell in cells])
            axis.plot(sizes, [cell[name] for cell in cells], "o", color=f"C{colour}")
            named = f"{stage}: {GROWING[stage]}$^{{{law['exponent']:.2f}}}$"
            axis.plot(sizes, law["scale"] * sizes ** law["exponent"], color=f"C{colour}", label=named)
        axis.set(xscale="log", yscale="log", xlabel="docids, tokens or documents", title=label)
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def write_corpus(folder: Path, docids: int) -> dict[str, float]:
    """A corpus of generated docids, five a document, whose text is ten more of the same."""
    if (folder / "corpus.jsonl").is_file():
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    documents = max(1, docids // DOCIDS_PER_DOCUMENT)
    with atomic_write(folder / "docids.jsonl") as file:
        for number, docid in enumerate(generate_docids(docids)):
            file.write(json.dumps({"_id": f"d{number % documents}", "docid": docid}).encode() + b"\n")
    texts = generate_docids(documents * WORDS_OF, seed=1)
    with atomic_write(folder / "corpus.jsonl") as file:
        for number in range(documents):
            text = ". ".join(next(texts) for _ in range(WORDS_OF))
            file.write(json.dumps({"_id": f"d{number}", "title": "", "text": text}).encode() + b"\n")
    return {}


def _vocabulary(corpus: Path, target: Path, size: int, threads: int, min_count: int) -> dict[str, float]:
    source = open_corpus(corpus)
    clock = _Clock()
    made = Vocabulary.build((row.docid for row in source.docids()), size, min_count=min_count, threads=threads)
    found = clock.told()
    made.save(target)
    return found | {"tokens": len(made), "disk_mb": target.stat().st_size / 1e6}


def _table(corpus: Path, words: Path, size: int, threads: int, min_count: int) -> dict[str, float]:
    vocabulary = load_vocabulary(words)
    with tempfile.TemporaryDirectory(dir=words.parent) as made:
        clock = _Clock()
        build_table(corpus, vocabulary, Path(made) / "table", threads=threads)
        found = clock.told()
        return found | {"tokens": len(vocabulary), "disk_mb": _disk_mb(Path(made))}


def _lexical(corpus: Path, words: Path, size: int, threads: int, min_count: int) -> dict[str, float]:
    vocabulary = load_vocabulary(words)
    source = open_corpus(corpus)
    texts = [document.text for document in source.documents()]
    clock = _Clock()
    LexicalIndex.build(vocabulary, enumerate(texts), len(texts))
    return clock.told() | {"tokens": len(vocabulary)}


def _disk_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


class _Clock:
    """Seconds, seconds of all cores, and the most memory held beyond what the process had at first."""

    def __init__(self) -> None:
        self._held = resident_mb()
        self._began, self._cpu = time.perf_counter(), time.process_time()

    def told(self) -> dict[str, float]:
        return {
            "seconds": time.perf_counter() - self._began,
            "cpu_seconds": time.process_time() - self._cpu,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6 - self._held,
        }
