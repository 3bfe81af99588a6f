"""Judged queries of a split."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pixnar.corpus import Corpus
from pixnar.vocab import normalize

MOST = 2000


@dataclass(frozen=True)
class Queries:
    """Queries of a split: ids, normalised texts, and the grades of the documents judged for each."""

    ids: list[str]
    texts: list[str]
    grades: list[dict[str, int]]

    @cached_property
    def relevant(self) -> list[set[str]]:
        """The documents that are relevant to each."""
        return [{doc_id for doc_id, grade in judged.items() if grade > 0} for judged in self.grades]

    def __len__(self) -> int:
        return len(self.ids)

    def first(self, most: int) -> Queries:
        """The first so many; a sample is in random order, so they are a sample, too."""
        return Queries(self.ids[:most], self.texts[:most], self.grades[:most])

    @property
    def qrels(self) -> dict[str, set[str]]:
        """The relevant documents of every query, as the metrics take them."""
        return dict(zip(self.ids, self.relevant, strict=True))

    @property
    def judgements(self) -> dict[str, dict[str, int]]:
        """The grades of every query, as the measures take them."""
        return dict(zip(self.ids, self.grades, strict=True))


def read_queries(corpus: Corpus, split: str, most: int = MOST) -> Queries:
    """The judged queries of a split; of more than `most` a sample, drawn with seed 0 from the sorted ids."""
    if split not in corpus.splits():
        return Queries([], [], [])
    judged: dict[str, dict[str, int]] = {}
    for row in corpus.qrels(split):
        judged.setdefault(row.query_id, {})[row.doc_id] = int(row.score)
    ids = sorted(query_id for query_id, grades in judged.items() if max(grades.values()) > 0)
    if most and len(ids) > most:
        ids = [ids[i] for i in np.random.default_rng(0).permutation(len(ids))[:most]]
    wanted = set(ids)
    texts = {query.query_id: normalize(query.text) for query in corpus.queries() if query.query_id in wanted}
    ids = [query_id for query_id in ids if query_id in texts]
    return Queries(ids, [texts[i] for i in ids], [judged[i] for i in ids])
