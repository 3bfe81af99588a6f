"""A retriever against the queries of a split. This is the one place where a test split is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pixnar.corpus import Corpus, open_corpus
from pixnar.errors import CorpusError
from pixnar.evaluate.latency import Latency, latency
from pixnar.evaluate.measures import DEFAULT, Figures, means, parse, per_query
from pixnar.evaluate.queries import MOST, read_queries
from pixnar.evaluate.significance import Interval, bootstrap
from pixnar.progress import Progress
from pixnar.search import Retriever

_BATCH = 50


@dataclass(frozen=True)
class Evaluation:
    """What was found, and how good it is: a figure per query and measure, in the order of the run's queries."""

    run: dict[str, list[tuple[str, float]]]
    judgements: dict[str, dict[str, int]]
    per_query: Mapping[str, Figures]
    latency: Latency | None = None

    @property
    def figures(self) -> dict[str, float]:
        """The mean of every measure."""
        return means(self.per_query)

    def intervals(self, level: float = 0.95) -> dict[str, Interval]:
        """Where the means may lie, by bootstrap over the queries."""
        return {name: bootstrap(values, level=level) for name, values in self.per_query.items()}


def evaluate(
    retriever: Retriever,
    corpus: str | Corpus,
    split: str,
    *,
    measures: Sequence[str] = DEFAULT,
    most: int = MOST,
    k: int = 0,
    timed: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """Ask a retriever the judged queries of a split, of more than `most` (0: all) a fixed sample.

    `k` documents are asked for, or as many as the measures look at. The first `timed` queries are then asked again, one
    at a time, to see how long they take.
    """
    wanted = [parse(name) for name in measures]
    depth = max(k, *(measure.cut for measure in wanted))
    source = open_corpus(corpus) if isinstance(corpus, str) else corpus
    queries = read_queries(source, split, most)
    if not len(queries):
        known = ", ".join(source.splits()) or "none"
        raise CorpusError(f"{source.name} has no judged queries in the split {split!r}: it has {known}")
    run: dict[str, list[tuple[str, float]]] = {}
    for start in range(0, len(queries), _BATCH):
        ids = queries.ids[start : start + _BATCH]
        found = retriever.search_batch(queries.texts[start : start + _BATCH], depth)
        run |= {one: [(hit.doc_id, hit.score) for hit in hits] for one, hits in zip(ids, found, strict=True)}
        if progress:
            progress("searching", len(run), len(queries))
    _, figures = per_query(run, queries.judgements, measures)
    taken = latency(retriever, queries.texts[:timed], progress=progress) if timed else None
    return Evaluation(run, queries.judgements, figures, taken)
