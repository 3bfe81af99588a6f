"""Who names whom in a corpus: docids and train queries on one side, documents on the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar.corpus import Corpus
from pixnar.errors import CorpusError
from pixnar.progress import Progress
from pixnar.train.pairs import Pairs
from pixnar.vocab import normalize

Ints = NDArray[np.int64]


@dataclass(kw_only=True)
class Names:
    """Distinct docids in the order of their texts, then train queries: the *inputs*, by one running number."""

    doc_ids: Sequence[str]  # of all documents that have docids, sorted
    docids: Sequence[str]  # normalised, distinct, sorted
    pair_docid: Ints  # which docid names …
    pair_document: Ints  # … which document; sorted by docid
    queries: Sequence[str]  # normalised train queries
    query_index: Ints  # which train query …
    query_document: Ints  # … has which relevant document

    @property
    def inputs(self) -> list[str]:
        """All texts that may stand for a query."""
        return [*self.docids, *self.queries]

    def text(self, number: int) -> str:
        """The text of an input."""
        before = len(self.docids)
        return self.docids[number] if number < before else self.queries[number - before]

    def names(self) -> tuple[Ints, Ints]:
        """Which input, a docid or a train query, names which document; sorted by input."""
        inputs = np.concatenate([self.pair_docid, len(self.docids) + self.query_index])
        return inputs, np.concatenate([self.pair_document, self.query_document])

    def pairs(self, **options: Any) -> Pairs:
        """What training draws its pairs from."""
        return Pairs(
            len(self.docids), self.pair_docid, self.pair_document, self.query_index, self.query_document, **options
        )


def read_names(corpus: Corpus, progress: Progress | None = None) -> Names:
    """Read docids and train queries of a corpus; dev and test queries are not looked at."""
    rows = [(normalize(row.docid), row.doc_id) for row in corpus.docids(progress)]
    rows = [row for row in rows if row[0]]
    if not rows:
        raise CorpusError(f"{corpus.name} has no docids: training needs texts that name documents (docids.jsonl)")
    docids = sorted({text for text, _ in rows})
    doc_ids = sorted({doc_id for _, doc_id in rows})
    docid_number = {text: i for i, text in enumerate(docids)}
    doc_number = {doc_id: i for i, doc_id in enumerate(doc_ids)}
    pairs = np.unique(np.array([(docid_number[text], doc_number[doc]) for text, doc in rows], np.int64), axis=0)
    queries, query_index, query_document = _train_queries(corpus, doc_number)
    return Names(
        doc_ids=doc_ids,
        docids=docids,
        pair_docid=pairs[:, 0].copy(),
        pair_document=pairs[:, 1].copy(),
        queries=queries,
        query_index=query_index,
        query_document=query_document,
    )


def _train_queries(corpus: Corpus, doc_number: dict[str, int]) -> tuple[list[str], Ints, Ints]:
    if "train" not in corpus.splits():
        return [], np.zeros(0, np.int64), np.zeros(0, np.int64)
    relevant = [
        (q.query_id, doc_number[q.doc_id]) for q in corpus.qrels("train") if q.score > 0 and q.doc_id in doc_number
    ]
    wanted = {query_id for query_id, _ in relevant}
    texts = {query.query_id: normalize(query.text) for query in corpus.queries() if query.query_id in wanted}
    queries = sorted({text for text in texts.values() if text})
    number = {text: i for i, text in enumerate(queries)}
    pairs = sorted({(number[texts[q]], doc) for q, doc in relevant if texts.get(q)})
    array = np.array(pairs, np.int64).reshape(-1, 2)
    return queries, array[:, 0].copy(), array[:, 1].copy()
