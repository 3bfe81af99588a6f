"""What a training run reads: docids as tokens, who names which document, inputs with their vectors and n-grams."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pixnar.corpus import Corpus
from pixnar.errors import CorpusError
from pixnar.evidence.ngrams import Ngrams, TokenCounts
from pixnar.model.losses import PADDING
from pixnar.progress import Progress
from pixnar.train.pairs import Pairs
from pixnar.vocab import TargetVocabulary, normalize
from pixnar.vocab.protocol import EncodedBatch

Ints = NDArray[np.int64]


@dataclass
class TrainingData:
    """Distinct docids in the order of their texts, then train queries: the *inputs*, by one running number."""

    vocabulary: TargetVocabulary
    doc_ids: list[str]  # of all documents that have docids, sorted
    docids: list[str]  # normalised, distinct, sorted
    tokens: EncodedBatch  # of the docids
    pair_docid: Ints  # which docid names …
    pair_document: Ints  # … which document; sorted by docid
    queries: list[str]  # normalised train queries
    query_index: Ints  # which train query …
    query_document: Ints  # … has which relevant document
    vectors: NDArray[np.float16] | None = None  # of the inputs, where the encoder is frozen
    _ngrams: TokenCounts | None = field(default=None, repr=False)

    @classmethod
    def read(cls, corpus: Corpus, vocabulary: TargetVocabulary, progress: Progress | None = None) -> TrainingData:
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
        if progress:
            progress("encoding docids", 0, len(docids))
        tokens = vocabulary.encode_batch(docids)
        return cls(
            vocabulary,
            doc_ids,
            docids,
            tokens,
            pairs[:, 0].copy(),
            pairs[:, 1].copy(),
            queries,
            query_index,
            query_document,
        )

    @property
    def inputs(self) -> list[str]:
        """All texts that may stand for a query."""
        return self.docids + self.queries

    @property
    def ngrams(self) -> TokenCounts:
        """The vocabulary's n-grams of every input; made when first asked for."""
        if self._ngrams is None:
            self._ngrams = Ngrams(self.vocabulary).count(self.inputs)
        return self._ngrams

    def names(self) -> tuple[Ints, Ints]:
        """Which input, a docid or a train query, names which document; sorted by input."""
        inputs = np.concatenate([self.pair_docid, len(self.docids) + self.query_index])
        return inputs, np.concatenate([self.pair_document, self.query_document])

    def pairs(self, **options: Any) -> Pairs:
        """What training draws its pairs from."""
        return Pairs(
            len(self.docids), self.pair_docid, self.pair_document, self.query_index, self.query_document, **options
        )

    def default_slots(self) -> int:
        """The 99th percentile of docid lengths + 1, at most 32."""
        return default_slots(self.tokens.lengths)

    def token_counts(self) -> NDArray[np.int64]:
        """How often each token, and the end of a docid, stands in the docids."""
        counts = np.bincount(self.tokens.ids, minlength=len(self.vocabulary) + 1)
        counts[-1] = len(self.docids)
        return counts

    def targets(self, docids: Ints, slots: int) -> Tensor:
        """Tokens of docids [B, slots]: the docid, its end if there is a slot for it, then padding."""
        out = np.full((len(docids), slots), PADDING, np.int64)
        starts, lengths = self.tokens.offsets[docids], self.tokens.lengths[docids]
        for t in range(slots):
            here = lengths > t
            out[here, t] = self.tokens.ids[starts[here] + t]
            out[lengths == t, t] = len(self.vocabulary)
        return torch.from_numpy(out)

    def rows(self, docids: Ints, most: int) -> tuple[Ints, Ints]:
        """All tokens of some docids, each docid's first `most`, and the position in `docids` that each belongs to."""
        places, owner = gathered(self.tokens.offsets[docids], np.minimum(self.tokens.lengths[docids], most))
        return self.tokens.ids[places].astype(np.int64), owner


def gathered(starts: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """The places of runs that begin at `starts`, one run after the other, and which run each belongs to.

    >>> [array.tolist() for array in gathered(np.array([10, 3]), np.array([2, 1]))]
    [[10, 11, 3], [0, 0, 1]]
    """
    owner = np.repeat(np.arange(len(starts)), lengths)
    inside = np.arange(len(owner)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return starts[owner] + inside, owner


def default_slots(lengths: NDArray[np.int64]) -> int:
    """The 99th percentile of docid lengths + 1, at most 32."""
    return int(min(32, np.percentile(lengths, 99, method="higher") + 1))


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
