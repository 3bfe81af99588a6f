"""Sponsored search: every docid is a keyword that can itself be found, and a query wants all those of its documents."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np

from pixnar.base.errors import MissingPartError
from pixnar.base.progress import Progress
from pixnar.corpus import Corpus, DocidRow, Document, Qrel, Query
from pixnar.corpus.records import Batch, Row
from pixnar.vocab import normalize

SIBLINGS = 20  # keywords that a keyword is trained to find, at most

_BATCH = 4096


def as_keywords(corpus: Corpus, *, seed: int = 0) -> Corpus:
    """The same corpus with its distinct docids as documents, each named by itself.

    What is judged relevant is every keyword of a relevant document. Keywords of one document are train queries of each
    other. Judgements are read when a split is asked for, not before.
    """
    return Corpus(f"{corpus.name} as keywords", _Keywords(corpus, seed))


class _Keywords:
    def __init__(self, corpus: Corpus, seed: int) -> None:
        self._corpus, self._seed = corpus, seed

    @cached_property
    def _named(self) -> tuple[list[str], dict[str, list[int]]]:
        """All keywords, and the keywords of every document."""
        rows = [(normalize(row.docid), row.doc_id) for row in self._corpus.docids()]
        keywords = sorted({text for text, _ in rows if text})
        number = {text: i for i, text in enumerate(keywords)}
        of: dict[str, set[int]] = {}
        for text, doc_id in rows:
            if text:
                of.setdefault(doc_id, set()).add(number[text])
        return keywords, {doc_id: sorted(found) for doc_id, found in of.items()}

    def documents(self, stage: str, progress: Progress | None) -> Iterator[Batch[Document]]:
        rows = (Document(f"k{i}", text, "", {}) for i, text in enumerate(self._named[0]))
        return _batches(stage, rows, len(self._named[0]), progress)

    def docids(self, stage: str, progress: Progress | None) -> Iterator[Batch[DocidRow]]:
        rows = (DocidRow(f"k{i}", text) for i, text in enumerate(self._named[0]))
        return _batches(stage, rows, len(self._named[0]), progress)

    def docid_files(self) -> list[Path]:
        raise MissingPartError(f"{self._corpus.name} as keywords is made of other rows: it has no files of docids")

    def queries(self, stage: str, progress: Progress | None) -> Iterator[Batch[Query]]:
        def rows() -> Iterator[Query]:
            yield from (Query(f"keyword-{i}", text) for i, text in enumerate(self._named[0]))
            yield from (Query(f"query-{row.query_id}", row.text) for row in self._corpus.queries())

        return _batches(stage, rows(), 0, progress)

    def qrels(self, split: str, stage: str, progress: Progress | None) -> Iterator[Batch[Qrel]]:
        return _batches(stage, self._qrels(split), 0, progress)

    def splits(self) -> list[str]:
        return ["train", *(name for name in self._corpus.splits() if name != "train")]

    def _qrels(self, split: str) -> Iterator[Qrel]:
        of = self._named[1]
        if split == "train":
            random = np.random.default_rng(self._seed)
            wanted: dict[int, set[int]] = {}
            for found in of.values():
                for one in found:
                    some = found if len(found) <= SIBLINGS else random.choice(found, SIBLINGS, replace=False).tolist()
                    wanted.setdefault(one, set()).update(other for other in some if other != one)
            for one in sorted(wanted):
                yield from (Qrel(f"keyword-{one}", f"k{other}", 1) for other in sorted(wanted[one]))
        if split in self._corpus.splits():
            best: dict[str, dict[int, int]] = {}
            for row in self._corpus.qrels(split):
                for one in of.get(row.doc_id, ()):
                    grades = best.setdefault(row.query_id, {})
                    grades[one] = max(grades.get(one, 0), row.score)
            for query_id, grades in best.items():
                yield from (Qrel(f"query-{query_id}", f"k{one}", score) for one, score in grades.items())


def _batches(stage: str, rows: Iterator[Row], total: int, progress: Progress | None) -> Iterator[Batch[Row]]:
    held: list[Row] = []
    done = 0
    for row in rows:
        held.append(row)
        if len(held) == _BATCH:
            yield Batch(stage, range(done + 1, done + 1 + len(held)), held, [])
            done += len(held)
            held = []
            if progress:
                progress(stage, done, total)
    yield Batch(stage, range(done + 1, done + 1 + len(held)), held, [])
