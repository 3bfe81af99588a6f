"""The demo's figures: the index beside the baselines, on held-out terms; measured once and kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from pixnar.base.errors import FileFormatError
from pixnar.base.progress import Progress
from pixnar.base.storage import file_digest, write_json
from pixnar.corpus import Corpus
from pixnar.evaluation import evaluate
from pixnar.evaluation.baselines import build_bm25, build_dense, build_hybrid, describe, open_baseline
from pixnar.evaluation.baselines.entries import AUTO
from pixnar.evaluation.baselines.folder import BASELINE
from pixnar.evaluation.baselines.hybrid import RRF, WEIGHTS
from pixnar.evaluation.run import with_spelling
from pixnar.index import Index
from pixnar.index.manifest import NAME, read_manifest
from pixnar.pipeline.run import default_cache
from pixnar.search import Retriever

SPLIT = "test"
MEASURES = ("MRR@10", "R@5", "R@20", "R@100")
BM25, DENSE, HYBRID, RANKS = "bm25", "dense", "hybrid", "rrf"
BASELINES = (BM25, DENSE, HYBRID, RANKS)
"""The folders of the baselines."""

_FILE = "figures.json"
_TIMED = 200
_THREADS = 1


class System(NamedTuple):
    """What is measured: its name, its folder, how it is opened, and which sources of an index rank."""

    name: str
    folder: Path
    opened: Callable[[], Retriever]
    sources: str = "all"


def systems(folder: Path) -> list[System]:
    """The rows of the table, ours first."""
    index = folder / "index"
    ours = [
        System(f"pixnar, {name}", index, partial(Index.load, index, threads=_THREADS, sources=sources), sources)
        for name, sources in (("all sources", "all"), ("docids alone", "docids"))
    ]
    names = {BM25: "BM25", DENSE: "dense", HYBRID: "hybrid of both", RANKS: "rank fusion of both"}
    return ours + [
        System(name, folder / place, partial(open_baseline, folder / place, threads=_THREADS))
        for place, name in names.items()
    ]


def is_built(folder: Path) -> bool:
    """Whether there is a baseline that this release can open."""
    try:
        return bool(read_manifest(folder, BASELINE))
    except FileFormatError:
        return False


def build_baselines(
    folder: Path, corpus: Corpus, encoder: str, precision: str = "fp32", progress: Progress | None = None
) -> None:
    """BM25, dense retrieval by the encoder of the index, and both fused, each unless it is there.

    With the precision of the index's own vectors they come from the cache.
    """
    shared: dict[str, Any] = {"overwrite": True, "progress": progress}
    if not is_built(folder / BM25):
        build_bm25(corpus, folder / BM25, over=AUTO, **shared)
    if not is_built(folder / DENSE):
        vectors: dict[str, Any] = {"encoder": encoder, "precision": precision, "cache": default_cache()}
        build_dense(corpus, folder / DENSE, over=AUTO, **vectors, **shared)
    for place, fusion in ((HYBRID, WEIGHTS), (RANKS, RRF)):
        if not is_built(folder / place):
            sides = folder / DENSE, folder / BM25
            build_hybrid(corpus, folder / place, fusion=fusion, dense=sides[0], bm25=sides[1], **shared)


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
                with_spelling(system.opened(), False, system.folder, corpus),  # as typed, like the baselines
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
            write_json(self._path, self.rows, indent=2)

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

    def sources(self) -> list[str]:
        """What each row ranks by."""
        return [f"{system.name}: {describe(system.folder, system.sources)}" for system in self.systems]

    def _of(self, system: System) -> list[Any]:
        """What a figure was measured on; None of a system that is not built."""
        path = system.folder / NAME
        return [file_digest(path) if path.exists() else None, self._queries]
