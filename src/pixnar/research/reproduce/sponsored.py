"""Sponsored search: every docid is a keyword that can itself be found, and a query wants all those of its documents."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from pixnar.base.errors import MissingPartError
from pixnar.base.progress import Progress
from pixnar.corpus import Corpus, DocidRow, Document, Qrel, Query
from pixnar.corpus.records import Batch, Row
from pixnar.evaluation.baselines import open_retriever
from pixnar.research.reproduce import paper
from pixnar.research.reproduce.report import Grid, Report, bars, better, paper_grid, percent, quality
from pixnar.research.reproduce.study import Judged, Study
from pixnar.research.reproduce.systems import baselines
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


_MEASURES = ("P@100", "P@10", "R@100", "MRR@10")


def sponsored(study: Study) -> Report:
    """Query to keyword: every docid is a document of its own, all those of a relevant document are wanted."""
    study.expect(4)
    corpus = as_keywords(study.corpus, seed=study.plan.seed)
    pieces = study.word_pieces(corpus=corpus)
    phrases = study.phrases(study.plan.size, corpus=corpus)
    rows: dict[str, Judged] = {}
    for label, folder in baselines(study, corpus=corpus, tuned=False)[0].items():
        opened = partial(open_retriever, folder, threads=study.plan.threads)
        rows[label] = study.judged(label, folder.name, opened, measures=_MEASURES, corpus=corpus)
    for label, folder in (("CLOVERv2", pieces), ("PIXNAR, the model alone", phrases)):
        rows[label] = study.judged_index(label, folder, measures=_MEASURES, corpus=corpus)
    clover, ours = rows["CLOVERv2"], rows["PIXNAR, the model alone"]
    grid = Grid(["system", *_MEASURES, "P@100 against CLOVERv2"])
    for label, row in rows.items():
        grid.rows.append((label, *quality(row, _MEASURES), None if row is clover else better(row, clover, "P@100")))
    wanted = np.array(ours.relevant)
    most = float(np.minimum(wanted, 100).mean() / 100)
    return Report(
        "sponsored",
        "Sponsored search: from a query to keywords",
        [grid, paper_grid("The paper, a billion keywords", ["system", "P@100"], paper.SPONSORED)],
        [
            f"P@100 cannot pass {percent(most)} here: a query has {wanted.mean():.1f} relevant keywords, so the "
            "column says more by comparison than by itself.",
            f"PIXNAR against CLOVERv2: P@100 {better(ours, clover, 'P@100')}; in the paper +23.7 %.",
            "Keywords of one document are train queries of each other; a query wants all those of its documents.",
        ],
        lambda axes: bars(axes, rows, "P@100", study.name),
        {label: {"figures": row.figures} for label, row in rows.items()},
    )
