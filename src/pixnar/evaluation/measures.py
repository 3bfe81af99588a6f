"""Measures of a ranking: published ones by name through ir-measures, and quick ones for training and choosing on dev.

What is reported goes through `measures`. Rankings and judgements are given side by side, one of each per query; all
figures are between 0 and 1.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import MissingExtraError, PixnarError
from pixnar.corpus.records import is_text
from pixnar.evaluation.queries import Qrels, Run

HIGHEST_GRADE = 1_000_000  # trec_eval has a counter for every grade up to the highest
DEFAULT = ("MRR@10", "R@5", "R@20", "R@100")
Figures = NDArray[np.float64]

_KINDS = {  # what people call them, our name, the name of ir-measures
    "mrr": ("MRR", "RR"),
    "rr": ("MRR", "RR"),
    "r": ("R", "R"),
    "recall": ("R", "R"),
    "hits": ("Hits", "Success"),
    "hit": ("Hits", "Success"),
    "success": ("Hits", "Success"),
    "p": ("P", "P"),
    "precision": ("P", "P"),
    "ndcg": ("nDCG", "nDCG"),
}
_SHAPE = re.compile(r"([a-zA-Z]+)@([1-9][0-9]{0,6})")


@dataclass(frozen=True)
class Measure:
    """A measure and how many of the first documents it looks at."""

    name: str
    cut: int
    theirs: str  # what ir-measures calls it

    def __str__(self) -> str:
        return f"{self.name}@{self.cut}"


def parse(name: str) -> Measure:
    """A measure by one of its names.

    >>> str(parse("recall@100")), str(parse("ndcg@10")), str(parse("RR@10"))
    ('R@100', 'nDCG@10', 'MRR@10')
    """
    match = _SHAPE.fullmatch(name.strip())
    if not match or match[1].lower() not in _KINDS:
        raise PixnarError(f"{name!r} is no measure: give MRR@k, R@k, Hits@k, P@k or nDCG@k, e.g. MRR@10")
    ours, theirs = _KINDS[match[1].lower()]
    return Measure(ours, int(match[2]), theirs)


def per_query(run: Run, qrels: Qrels, names: Sequence[str] = DEFAULT) -> tuple[list[str], dict[str, Figures]]:
    """The judged queries that have a relevant document, and for each measure one figure per query.

    Documents count in the order in which the run has them. A query that is not in the run found nothing.

    >>> per_query({"q": [("a", 2.0), ("b", 1.0)]}, {"q": {"b": 1}, "r": {"a": 1}}, ["MRR@10"])[1]["MRR@10"].tolist()
    [0.5, 0.0]
    """
    try:
        import ir_measures
    except ImportError as error:
        raise MissingExtraError("measuring a run", "evaluate") from error
    measures = [parse(name) for name in names]
    ids = [query for query, judged in qrels.items() if any(grade > 0 for grade in judged.values())]
    if not ids:
        raise PixnarError("there are no judged queries to average over: check the qrels and their split")
    named = (doc_id for hits in run.values() for doc_id, _ in hits)
    for text in chain(run, named, ids, *(qrels[query] for query in ids)):
        if not is_text(text):
            raise PixnarError(f"the id {text!r} is no Unicode text, which trec_eval needs: give it another one")
    for query in ids:
        highest = max(qrels[query].values())
        if highest > HIGHEST_GRADE:
            raise PixnarError(
                f"query {query} has a document of grade {highest:,}: grades go to {HIGHEST_GRADE:,}, scale them down"
            )
    place = {query: i for i, query in enumerate(ids)}
    # RR@k of ir-measures is not trec_eval's, which has no cut; RR is, and what comes too late in it is cut here.
    wanted = {measure: ir_measures.parse_measure(_whole(measure)) for measure in measures}
    by_theirs: dict[Any, list[Measure]] = {}
    for measure, theirs in wanted.items():
        by_theirs.setdefault(theirs, []).append(measure)
    figures = {str(measure): np.zeros(len(ids)) for measure in measures}
    judgements = {query: dict(qrels[query]) for query in ids}
    for found in ir_measures.iter_calc(list(by_theirs), judgements, _scored(run, place)):
        for measure in by_theirs[found.measure]:
            value = float(found.value)
            cut_off = measure.theirs == "RR" and value > 0 and round(1 / value) > measure.cut
            figures[str(measure)][place[found.query_id]] = 0.0 if cut_off else value
    return ids, figures


def means(figures: Mapping[str, Figures]) -> dict[str, float]:
    """The mean of every measure."""
    return {name: float(values.mean()) for name, values in figures.items()}


def _whole(measure: Measure) -> str:
    return "RR" if measure.theirs == "RR" else f"{measure.theirs}@{measure.cut}"


def _scored(run: Run, place: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """Scores that leave nothing to ties: the order of the run is the order that counts."""
    return {
        query: {doc_id: float(-rank) for rank, (doc_id, _) in enumerate(hits)}
        for query, hits in run.items()
        if query in place
    }


Ranked = Iterable[Sequence[Hashable]]
Relevant = Iterable[Collection[Hashable]]


def reciprocal_ranks(ranked: Ranked, relevant: Relevant, k: int) -> Figures:
    """Per query 1 / rank of the first relevant document among the first `k`, or 0 if there is none.

    >>> reciprocal_ranks([["a", "b"], ["a", "b"]], [{"b"}, {"c"}], 10).tolist()
    [0.5, 0.0]
    """
    return np.array([_reciprocal_rank(row[:k], wanted) for row, wanted in zip(ranked, relevant, strict=True)], float)


def recalls(ranked: Ranked, relevant: Relevant, k: int) -> Figures:
    """Per query the share of its relevant documents that are among the first `k`; 0 if it has none.

    >>> recalls([["a", "b", "c"]], [{"b", "c"}], 2).tolist()
    [0.5]
    """
    pairs = zip(ranked, relevant, strict=True)
    return np.array([len(set(row[:k]) & set(wanted)) / max(len(set(wanted)), 1) for row, wanted in pairs], float)


def mean_of(values: Figures) -> float:
    """The mean of a figure over queries."""
    if not len(values):
        raise PixnarError("there are no judged queries to average over: check the qrels and their split")
    return float(values.mean())


def mrr_at(ranked: Ranked, relevant: Relevant, k: int = 10) -> float:
    """Mean of `reciprocal_ranks`."""
    return mean_of(reciprocal_ranks(ranked, relevant, k))


def recall_at(ranked: Ranked, relevant: Relevant, k: int) -> float:
    """Mean of `recalls`."""
    return mean_of(recalls(ranked, relevant, k))


def summary(run: Mapping[str, Sequence[str]], qrels: Mapping[str, Collection[str]]) -> dict[str, float]:
    """MRR@10 and recall at 5, 20 and 100 over the queries that have relevant documents.

    A query that is not in the run found nothing. So to judge a sample of queries, give the judgements of the sample.

    >>> summary({"q1": ["d1", "d2"]}, {"q1": {"d2"}, "q2": {"d1"}})
    {'MRR@10': 0.25, 'R@5': 0.5, 'R@20': 0.5, 'R@100': 0.5}
    """
    judged = [query for query, wanted in qrels.items() if wanted]
    ranked, relevant = [run.get(query, ()) for query in judged], [qrels[query] for query in judged]
    return {"MRR@10": mrr_at(ranked, relevant, 10)} | {f"R@{k}": recall_at(ranked, relevant, k) for k in (5, 20, 100)}


def _reciprocal_rank(row: Sequence[Hashable], wanted: Collection[Hashable]) -> float:
    return next((1 / rank for rank, document in enumerate(row, 1) if document in wanted), 0.0)
