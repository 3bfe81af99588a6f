"""The demo's figures: the index beside what one would use instead, on held-out terms; made once and kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from pixnar.baselines import build_bm25, build_dense, is_baseline, open_baseline
from pixnar.baselines.entries import DOCIDS
from pixnar.corpus import Corpus
from pixnar.evaluate import evaluate
from pixnar.fit.run import default_cache
from pixnar.index import Index
from pixnar.index.manifest import NAME
from pixnar.progress import Progress
from pixnar.search import Retriever
from pixnar.storage import atomic_write, file_digest

SPLIT = "test"
MEASURES = ("MRR@10", "R@5", "R@20", "R@100")
BM25, DENSE = "bm25", "dense"  # the folders of the two baselines

_FILE = "figures.json"
_TIMED = 200
_THREADS = 1


class System(NamedTuple):
    """What is measured: its name, its folder, and how it is opened."""

    name: str
    folder: Path
    opened: Callable[[], Retriever]


def systems(folder: Path) -> list[System]:
    """The rows of the table, ours first."""
    index = folder / "index"
    return [
        System("pixnar, all sources (the default)", index, lambda: Index.load(index, threads=_THREADS)),
        System("pixnar, docids alone", index, lambda: Index.load(index, threads=_THREADS, sources="docids")),
        System("BM25 over docids", folder / BM25, lambda: open_baseline(folder / BM25)),
        System(
            "dense, same encoder, zero-shot", folder / DENSE, lambda: open_baseline(folder / DENSE, threads=_THREADS)
        ),
    ]


def build_baselines(folder: Path, corpus: Corpus, encoder: str, progress: Progress | None = None) -> None:
    """BM25, and dense retrieval by the encoder that the index has, each unless it is there."""
    if not is_baseline(folder / BM25):
        build_bm25(corpus, folder / BM25, over=DOCIDS, progress=progress)
    if not is_baseline(folder / DENSE):
        build_dense(corpus, folder / DENSE, encoder=encoder, cache=default_cache(), progress=progress)


class Figures:
    """Measured so far, by system; a figure counts while the folder it was measured on is the same."""

    def __init__(self, folder: Path, queries: int) -> None:
        self.systems, self._path, self._queries = systems(folder), folder / _FILE, queries
        try:
            self.rows: dict[str, dict[str, Any]] = dict(json.loads(self._path.read_bytes()))
        except (OSError, ValueError, TypeError):
            self.rows = {}

    @property
    def missing(self) -> list[System]:
        """Those to be measured, for the first time or again."""
        return [system for system in self.systems if self.rows.get(system.name, {}).get("of") != self._of(system)]

    def measure(self, corpus: Corpus, progress: Progress | None = None) -> None:
        """Ask every system that is missing; each is on disk before the next is asked."""
        for system in self.missing:
            found = evaluate(
                system.opened(),
                corpus,
                SPLIT,
                measures=MEASURES,
                most=self._queries,
                timed=_TIMED,
                progress=progress,
            )
            low, high = found.intervals()[MEASURES[0]]
            figures = {"figures": found.figures, "within": (high - low) / 2, "queries": len(found.run)}
            assert found.latency is not None
            self.rows[system.name] = {"of": self._of(system), **figures, "ms": found.latency.p50}
            with atomic_write(self._path) as file:
                file.write(json.dumps(self.rows, indent=2).encode())

    def table(self) -> Table:
        """For people: per cent, and milliseconds."""
        table = Table("", *MEASURES, "ms a query", box=None, padding=(0, 2, 0, 0), header_style="dim")
        for column in table.columns[1:]:
            column.justify = "right"
        for number, system in enumerate(self.systems):
            row = self.rows[system.name]
            first, *others = (f"{100 * row['figures'][measure]:.1f}" for measure in MEASURES)
            cells = [f"{first} ± {100 * row['within']:.1f}", *others, f"{row['ms']:.1f}"]
            table.add_row(system.name, *cells, style="bold" if number == 0 else "")
        return table

    def _of(self, system: System) -> list[Any]:
        """What a figure was measured on; None of a system that is not built."""
        path = system.folder / NAME
        return [file_digest(path) if path.exists() else None, self._queries]
