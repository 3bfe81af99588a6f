"""The judged queries of a split: what every choice and every figure rests on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pixnar.corpus import Corpus
from pixnar.vocab import normalize

MOST = 2000


@dataclass(frozen=True)
class Queries:
    """Queries of a split: ids, normalised texts, and the documents that are relevant to each."""

    ids: list[str]
    texts: list[str]
    relevant: list[set[str]]

    def __len__(self) -> int:
        return len(self.ids)

    def first(self, most: int) -> Queries:
        """The first so many; a sample is in random order, so they are a sample, too."""
        return Queries(self.ids[:most], self.texts[:most], self.relevant[:most])

    @property
    def qrels(self) -> dict[str, set[str]]:
        """As the metrics take them."""
        return dict(zip(self.ids, self.relevant, strict=True))


def read_queries(corpus: Corpus, split: str, most: int = MOST) -> Queries:
    """The judged queries of a split; of more than `most` a sample, drawn with seed 0 from the sorted ids."""
    if split not in corpus.splits():
        return Queries([], [], [])
    judged: dict[str, set[str]] = {}
    for row in corpus.qrels(split):
        if row.score > 0:
            judged.setdefault(row.query_id, set()).add(row.doc_id)
    ids = sorted(judged)
    if most and len(ids) > most:
        ids = [ids[i] for i in np.random.default_rng(0).permutation(len(ids))[:most]]
    wanted = set(ids)
    texts = {query.query_id: normalize(query.text) for query in corpus.queries() if query.query_id in wanted}
    ids = [query_id for query_id in ids if query_id in texts]
    return Queries(ids, [texts[i] for i in ids], [judged[i] for i in ids])
