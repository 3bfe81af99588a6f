"""Table 1, the whole field on one corpus, in quality and latency; and sponsored search, where docids are keywords."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pixnar.base.errors import MissingPartError
from pixnar.base.progress import Progress
from pixnar.corpus import Corpus, DocidRow, Document, Qrel, Query
from pixnar.corpus.records import Batch, batches
from pixnar.evaluation import latencies
from pixnar.evaluation.baselines import build_bm25, build_dense, build_hybrid, describe, open_retriever
from pixnar.evaluation.baselines.bi_encoder import Tuning
from pixnar.evaluation.baselines.folder import BASELINE
from pixnar.evaluation.baselines.hybrid import RRF, WEIGHTS
from pixnar.evaluation.measures import DEFAULT
from pixnar.evaluation.queries import read_queries
from pixnar.recipe import Recipe
from pixnar.recipe.presets import L1_ONLY, TOKEN_LOSSES
from pixnar.research.reproduce.report import (
    PAPER_SPONSORED,
    PAPER_TABLE1,
    Grid,
    StudyReport,
    bars,
    better,
    paper_grid,
    percent,
    quality,
    scatter,
)
from pixnar.research.reproduce.study import Judged, Study
from pixnar.search import Retriever
from pixnar.vocab import normalize

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CLOVER_NAME, ALONE = "CLOVERv2", "PIXNAR, the model alone"
BEST_BM25, TUNED = "BM25, best on dev", "dense, fine-tuned"
DENSE, DENSE_BOTH = "dense, docids", "dense, text and docids"
HYBRID, RANKS, TUNED_HYBRID = "hybrid", "hybrid, rank fusion", "hybrid, fine-tuned dense"
UNFUSED, FUSED = "PIXNAR with its lexical index", "PIXNAR, fused with dense and text"
_SURE = 0.05  # p-values below are no luck
_FORMS = {
    "BM25, docids, best": "docids",
    "BM25, docids joined": "joined",
    "BM25, text": "text",
    "BM25, text and docids": "both",
    BEST_BM25: "auto",
}
_KEYWORD_FORMS = (_FORMS["BM25, docids, best"], _FORMS[BEST_BM25])  # a keyword has one docid and no text


def whole_index(study: Study) -> Path:
    """The index of the whole recipe: composed score, copy term, lexical index, shortlist, fusion."""
    return study.index("PIXNAR", study.recipe(Recipe(), [f"vocab.size={study.plan.size}"]))


def baselines(
    study: Study, *, corpus: Corpus | None = None, tuned: bool = True
) -> tuple[dict[str, Path], dict[str, str]]:
    """The folders of the baselines, and why some are left out."""
    source = corpus or study.corpus
    made: dict[str, Path] = {}
    missing: dict[str, str] = {}
    if tuned and not study.plan.tuned:
        tuned, missing[TUNED] = False, "--no-tuned"

    def build(label: str, facts: Any, make: Callable[[Path], Any], *, slow: bool = True) -> None:
        folder = study.work / "baselines" / study.key(label, [source.name, BASELINE.version, facts])
        folder.parent.mkdir(exist_ok=True)
        try:
            study.build(label, folder, partial(make, folder), slow=slow)
        except MissingPartError as error:  # no text, or no pairs to train on
            missing[label] = str(error)
            study.say(f"{study.name}: no {label}: {error}")
        else:
            made[label] = folder

    for label, over in _FORMS.items():
        if corpus is not None and over not in _KEYWORD_FORMS:
            continue
        build(label, over, partial(build_bm25, source, over=over, progress=study.progress), slow=False)
    shared: dict[str, Any] = {
        "encoder": study.plan.encoder,
        "threads": study.plan.threads,
        "cache": study.cache,
        "progress": study.progress,
    }
    build(DENSE, study.plan.encoder, partial(build_dense, source, **shared))
    if corpus is None:
        build(DENSE_BOTH, study.plan.encoder, partial(build_dense, source, over="both", **shared))
    if tuned:
        plan = study.plan
        tuning = Tuning(steps=plan.steps, minutes=0.0 if plan.steps else plan.minutes, seed=plan.seed)
        over = "both" if DENSE_BOTH in made else "docids"
        make = partial(build_dense, source, over=over, tuning=tuning, **shared)
        build(TUNED, [plan.encoder, over, asdict(tuning)], make)
    untuned = DENSE_BOTH if DENSE_BOTH in made else DENSE
    for label, dense, fusion in ((HYBRID, untuned, WEIGHTS), (RANKS, untuned, RRF), (TUNED_HYBRID, TUNED, WEIGHTS)):
        if dense in made and BEST_BM25 in made:
            sides = made[dense], made[BEST_BM25]
            make = partial(build_hybrid, source, fusion=fusion, dense=sides[0], bm25=sides[1])
            build(label, [fusion, *(side.name for side in sides)], make, slow=False)
    return made, missing


def table1(study: Study) -> StudyReport:
    """Baselines, CLOVERv2, and PIXNAR with more and more of what this project adds."""
    study.expect(8)
    pieces = study.word_pieces()
    others, missing = baselines(study)
    l1, tokens = study.word_pieces(*L1_ONLY), study.word_pieces(*TOKEN_LOSSES)
    alone, whole = study.phrases(study.plan.size), whole_index(study)
    ours = {
        f"{CLOVER_NAME}, l1 only": (l1, "docids"),
        f"{CLOVER_NAME}, the paper's three losses": (tokens, "docids"),
        CLOVER_NAME: (pieces, "docids"),
        ALONE: (alone, "docids"),
        UNFUSED: (whole, "lexical"),
        FUSED: (whole, "all"),
    }
    threads = study.plan.threads
    rows: dict[str, Judged] = {
        label: study.judged(label, folder.name, partial(open_retriever, folder, threads=threads))
        for label, folder in others.items()
    }
    rows |= {label: study.judged_index(label, folder, sources=sources) for label, (folder, sources) in ours.items()}
    spent = _times(study, others, ours)
    settings = study.recipe(Recipe())
    ours_tuned = settings.train.fine_tune > 0 or settings.model.slot_design == "mask"  # mask slots train it throughout
    clover = rows[CLOVER_NAME]
    ranks_by = {label: describe(folder) for label, folder in others.items()}
    ranks_by |= {label: describe(folder, sources) for label, (folder, sources) in ours.items()}
    grid = Grid(["system", *DEFAULT, "MRR@10 against CLOVERv2", "mean ms", "p99 ms", "ranks by"])
    for label, row in rows.items():
        against = None if row is clover else better(row, clover)
        took = (f"{spent[label][name]:.1f}" for name in ("mean", "p99"))
        grid.rows.append((label, *quality(row, DEFAULT), against, *took, ranks_by[label]))
    return StudyReport(
        "table1",
        "Table 1: all systems",
        [
            grid,
            paper_grid(
                "The paper, MS MARCO", ["system", "R@5", "R@20", "R@100", "MRR@10", "GPU latency"], PAPER_TABLE1
            ),
        ],
        [
            *_reading(rows, others.get(TUNED), ours_tuned=ours_tuned),
            *(f"No {label}: {why}." for label, why in missing.items()),
        ],
        lambda axes: _plot(axes, study, rows, spent),
        {
            label: {
                "figures": row.figures,
                "latency_ms": spent[label],
                "facts": row.facts,
                "ranks by": ranks_by[label],
            }
            for label, row in rows.items()
        },
    )


def _times(study: Study, others: dict[str, Path], ours: dict[str, tuple[Path, str]]) -> dict[str, dict[str, float]]:
    """Milliseconds of every system, side by side: all are open at once, one thread each, and take turns."""

    def measured() -> dict[str, dict[str, float]]:
        study.say(f"{study.name}: timing all systems")
        opened: dict[str, Retriever] = {label: open_retriever(folder, threads=1) for label, folder in others.items()}
        opened |= {label: study.opened(folder, sources, threads=1) for label, (folder, sources) in ours.items()}
        texts = read_queries(study.corpus, "dev", study.plan.timed).texts
        return {label: one._asdict() for label, one in latencies(opened, texts, progress=study.progress).items()}

    named = {label: folder.name for label, folder in others.items()}
    named |= {label: f"{folder.name} {sources}" for label, (folder, sources) in ours.items()}
    found: dict[str, dict[str, float]] = study.kept("times of systems", [named, study.plan.timed], measured)
    return found


def _reading(rows: dict[str, Judged], tuned: Path | None, *, ours_tuned: bool) -> list[str]:
    """Who is ahead of whom."""
    others = {label: row for label, row in rows.items() if label.startswith(("BM25", "dense", "hybrid"))}
    lines = [
        "Phrases in place of word-pieces, all else equal, without copy or fusion: MRR@10 "
        f"{better(rows[ALONE], rows[CLOVER_NAME])}; in the paper +31.0 % with 5 M phrases."
    ]
    for label in (ALONE, UNFUSED, FUSED):
        kinds: dict[str, list[str]] = {"ahead of": [], "level with": [], "behind": []}
        for other, row in others.items():
            sure = rows[label].p_value(row, "MRR@10") < _SURE
            lead = rows[label].figures["MRR@10"] > row.figures["MRR@10"]
            kind = "level with" if not sure else "ahead of" if lead else "behind"
            kinds[kind].append(f"{other} ({better(rows[label], row)})")
        told = "; ".join(f"{kind} {', '.join(names)}" for kind, names in kinds.items() if names)
        lines.append(f"{label}, MRR@10: {told}.")
    if tuned is not None:
        frozen = "" if ours_tuned else " Our encoder is frozen: a step of ours takes a fraction of that."
        facts = json.loads((tuned / "manifest.json").read_bytes())["facts"]["fine_tuning"]
        lines.append(
            f"Dense retrieval was fine-tuned for {facts['steps']:,} steps of 64 pairs, all layers; the best on dev, "
            f"step {facts['best_step']:,}, was kept.{frozen}"
        )
    lines.append(
        "Latency: one thread, one dev query at a time, k = 10, the best of two, and each query asked of all systems "
        "before the next; the encoder, in fp32 for all, is included where there is one."
    )
    return lines


def _plot(axes: Axes, study: Study, rows: dict[str, Judged], spent: dict[str, dict[str, float]]) -> None:
    points = {
        label: (spent[label]["mean"], spent[label]["p99"], 100 * row.figures["MRR@10"]) for label, row in rows.items()
    }
    scatter(axes, points)
    axes.set(xlabel="ms a query, mean to p99", ylabel=f"{study.plan.split} MRR@10, %", title=study.name)


SIBLINGS = 20  # keywords that a keyword is trained to find, at most


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
        return batches(stage, rows)

    def docids(self, stage: str, progress: Progress | None) -> Iterator[Batch[DocidRow]]:
        rows = (DocidRow(f"k{i}", text) for i, text in enumerate(self._named[0]))
        return batches(stage, rows)

    def docid_files(self) -> list[Path]:
        raise MissingPartError(f"{self._corpus.name} as keywords is made of other rows: it has no files of docids")

    def queries(self, stage: str, progress: Progress | None) -> Iterator[Batch[Query]]:
        def rows() -> Iterator[Query]:
            yield from (Query(f"keyword-{i}", text) for i, text in enumerate(self._named[0]))
            yield from (Query(f"query-{row.query_id}", row.text) for row in self._corpus.queries())

        return batches(stage, rows())

    def qrels(self, split: str, stage: str, progress: Progress | None) -> Iterator[Batch[Qrel]]:
        return batches(stage, self._qrels(split))

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


_MEASURES = ("P@100", "P@10", "R@100", "MRR@10")


def sponsored(study: Study) -> StudyReport:
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
    return StudyReport(
        "sponsored",
        "Sponsored search: from a query to keywords",
        [grid, paper_grid("The paper, a billion keywords", ["system", "P@100"], PAPER_SPONSORED)],
        [
            f"P@100 cannot pass {percent(most)} here: a query has {wanted.mean():.1f} relevant keywords, so the "
            "column says more by comparison than by itself.",
            f"PIXNAR against CLOVERv2: P@100 {better(ours, clover, 'P@100')}; in the paper +23.7 %.",
            "Keywords of one document are train queries of each other; a query wants all those of its documents.",
        ],
        lambda axes: bars(axes, rows, "P@100", study.name),
        {label: {"figures": row.figures} for label, row in rows.items()},
    )
