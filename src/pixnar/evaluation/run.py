"""Evaluation of a retriever on the queries of a split; the only place that reads a test split."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from pixnar.base.errors import CorpusError
from pixnar.base.progress import Progress
from pixnar.corpus import Corpus, open_corpus
from pixnar.corpus.queries import Perturbation
from pixnar.evaluation.latency import Latency, latency
from pixnar.evaluation.measures import DEFAULT, Figures, means, parse, per_query
from pixnar.evaluation.queries import MOST, Queries, read_queries
from pixnar.evaluation.significance import Interval, bootstrap, paired_difference
from pixnar.index import BeamSearch, Index
from pixnar.search import Retriever
from pixnar.search.spelling import Corrected, Lexicon, Speller, words_of_tokenizers

_BATCH = 50


class PerturbationEffect(NamedTuple):
    """How a mean changes when queries are perturbed: minus what is lost, and the p-value of a paired test."""

    difference: float
    relative: float | None  # of the mean without perturbation; None where that is 0
    interval: Interval  # of the difference
    p_value: float


@dataclass(frozen=True)
class Evaluation:
    """What was found, and how good it is: a figure per query and measure, in the order of the run's queries.

    `texts` are the queries as they were asked. Where they were perturbed, `unperturbed` is the evaluation without that.
    """

    run: dict[str, list[tuple[str, float]]]
    judgements: dict[str, dict[str, int]]
    per_query: Mapping[str, Figures]
    latency: Latency | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    unperturbed: Evaluation | None = None

    @property
    def figures(self) -> dict[str, float]:
        """The mean of every measure."""
        return means(self.per_query)

    def intervals(self, level: float = 0.95) -> dict[str, Interval]:
        """Where the means may lie, by bootstrap over the queries."""
        return {name: bootstrap(values, level=level) for name, values in self.per_query.items()}

    def changes(self) -> dict[str, PerturbationEffect]:
        """How much each mean differs from that of the unperturbed queries; empty where none were perturbed."""
        if self.unperturbed is None:
            return {}
        found: dict[str, PerturbationEffect] = {}
        for name, figures in self.per_query.items():
            before = self.unperturbed.per_query[name]
            difference, p_value = paired_difference(figures, before)
            mean = float(before.mean())
            found[name] = PerturbationEffect(
                difference, difference / mean if mean else None, bootstrap(figures - before), p_value
            )
        return found

    @property
    def queries_changed(self) -> int:
        """How many queries a perturbation left different from what they were."""
        if self.unperturbed is None:
            return 0
        return sum(text != self.unperturbed.texts[query_id] for query_id, text in self.texts.items())


def evaluate(
    retriever: Retriever | str | os.PathLike[str],
    corpus: Corpus | str | os.PathLike[str],
    split: str = "test",
    *,
    measures: Sequence[str] = DEFAULT,
    most: int = MOST,
    k: int = 0,
    timed: int = 0,
    perturbation: Perturbation | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Ask a retriever, or the index or baseline in a folder, the judged queries of a split.

    ``pixnar.evaluate(index, "corpus/", split="test").figures`` has MRR@10 and recalls.

    Of more than `most` queries (0: all) a fixed sample is asked. `k` documents are asked for, or as many as the
    measures look at. The first `timed` queries are then asked again, one at a time, to see how long they take. With a
    `perturbation` the queries are asked as they are and perturbed; the evaluation is that of the perturbed ones, and
    has the other as `unperturbed`.
    """
    wanted = [parse(name) for name in measures]
    depth = max(k, *(measure.cut for measure in wanted))
    source = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    if isinstance(retriever, str | os.PathLike):
        from pixnar.evaluation.baselines import open_retriever

        retriever = open_retriever(retriever)
    queries = read_queries(source, split, most)
    if not len(queries):
        known = ", ".join(source.splits()) or "none"
        raise CorpusError(f"{source.name} has no judged queries in the split {split!r}: it has {known}")
    found = _measured(retriever, queries, measures, depth, "searching", progress)
    if perturbation:
        texts = [perturbation.apply(text, one) for one, text in zip(queries.ids, queries.texts, strict=True)]
        queries = replace(queries, texts=texts)
        again = _measured(retriever, queries, measures, depth, f"searching, {perturbation}", progress)
        found = replace(again, unperturbed=found)
    if timed:
        found = replace(found, latency=latency(retriever, queries.texts[:timed], progress=progress))
    return found


def with_spelling(
    retriever: Retriever, spelling: bool, folder: Path, corpus: Corpus, progress: Progress | None = None
) -> Retriever:
    """The index or baseline of a folder, its queries corrected or left as they are.

    An index corrects by its own lexicon. Others get one of the corpus' words and of those that their tokenizers know.
    """
    index = retriever.index if isinstance(retriever, BeamSearch) else retriever
    if isinstance(index, Index):
        index.searcher.corrects = spelling and index.ranker.speller is not None
    if not spelling or (isinstance(index, Index) and index.searcher.corrects):
        return retriever
    return Corrected(retriever, Speller(Lexicon.of_corpus(corpus, words_of_tokenizers(folder), progress)))


def _measured(
    retriever: Retriever, queries: Queries, measures: Sequence[str], depth: int, words: str, progress: Progress | None
) -> Evaluation:
    run: dict[str, list[tuple[str, float]]] = {}
    for start in range(0, len(queries), _BATCH):
        ids = queries.ids[start : start + _BATCH]
        found = retriever.search_batch(queries.texts[start : start + _BATCH], depth)
        run |= {one: [(hit.id, hit.score) for hit in hits] for one, hits in zip(ids, found, strict=True)}
        if progress:
            progress(words, len(run), len(queries))
    _, figures = per_query(run, queries.judgements, measures)
    return Evaluation(run, queries.judgements, figures, texts=dict(zip(queries.ids, queries.texts, strict=True)))
