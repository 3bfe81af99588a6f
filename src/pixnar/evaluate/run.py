"""An index against the queries of a split."""

from __future__ import annotations

import os
from pathlib import Path

from pixnar.corpus import open_corpus
from pixnar.errors import CorpusError
from pixnar.evaluate.metrics import summary
from pixnar.evaluate.queries import read_queries
from pixnar.index import Index
from pixnar.progress import Progress
from pixnar.storage import atomic_write

Run = dict[str, list[tuple[str, float]]]

_BATCH = 50


def evaluate(
    index: str | os.PathLike[str] | Index,
    corpus: str,
    split: str,
    *,
    most: int = 2000,
    k: int = 100,
    shortlist: bool = True,
    threads: int = 2,
    progress: Progress | None = None,
) -> tuple[dict[str, float], Run]:
    """Figures of an index on a split, and the k best documents of every query with their scores."""
    source = open_corpus(corpus)
    queries = read_queries(source, split, most)
    if not len(queries):
        known = ", ".join(source.splits()) or "none"
        raise CorpusError(f"{source.name} has no judged queries in the split {split!r}: it has {known}")
    opened = index if isinstance(index, Index) else Index.load(index, shortlist=shortlist, threads=threads)
    run: Run = {}
    for start in range(0, len(queries), _BATCH):
        ids = queries.ids[start : start + _BATCH]
        found = opened.search_batch(queries.texts[start : start + _BATCH], k)
        run |= {one: [(hit.doc_id, hit.score) for hit in hits] for one, hits in zip(ids, found, strict=True)}
        if progress:
            progress("searching", len(run), len(queries))
    return summary({one: [doc_id for doc_id, _ in hits] for one, hits in run.items()}, queries.qrels), run


def write_trec(path: Path, run: Run, name: str = "pixnar") -> None:
    """Write a run file: query, Q0, document, rank, score, name."""
    lines = []
    for query, hits in run.items():
        last = float("inf")
        for rank, (doc_id, score) in enumerate(hits, 1):
            last = min(score, last - 1e-6)  # equal scores would be put in another order by who reads the file
            lines.append(f"{query} Q0 {doc_id} {rank} {last:.6f} {name}\n")
    with atomic_write(path) as file:
        file.write("".join(lines).encode())
