"""What a training run reads: docids as tokens, who names which document, inputs with their vectors and n-grams."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pixnar.base.progress import Progress
from pixnar.corpus import Corpus
from pixnar.fusion.ngrams import Ngrams, TokenCounts
from pixnar.model.losses import PADDING
from pixnar.train.names import Names, read_names
from pixnar.vocab import TargetVocabulary
from pixnar.vocab.protocol import EncodedBatch

Ints = NDArray[np.int64]


@dataclass(kw_only=True)
class TrainingData(Names):
    """Who names whom, and the docids as tokens of a vocabulary."""

    vocabulary: TargetVocabulary
    tokens: EncodedBatch  # of the docids
    vectors: NDArray[np.float16] | None = None  # of the inputs, where the encoder is frozen
    keep_ngrams: bool = True  # of all inputs, or count those of a batch when they are needed
    _ngrams: TokenCounts | None = field(default=None, repr=False)

    @classmethod
    def read(
        cls,
        corpus: Corpus,
        vocabulary: TargetVocabulary,
        progress: Progress | None = None,
        *,
        passages: int = 0,
        typos: float = 0.0,
    ) -> TrainingData:
        """Read a corpus as `read_names` does; dev and test queries are not looked at."""
        names = read_names(corpus, progress, passages=passages, typos=typos)
        if progress:
            progress("encoding docids", 0, len(names.docids))
        return cls(**vars(names), vocabulary=vocabulary, tokens=vocabulary.encode_batch(names.docids))

    @property
    def ngrams(self) -> TokenCounts:
        """The vocabulary's n-grams of every input; made when first asked for."""
        if self._ngrams is None:
            self._ngrams = Ngrams(self.vocabulary).count(self.inputs)
        return self._ngrams

    def ngrams_of(self, inputs: Ints) -> tuple[Ints, Ints]:
        """The n-grams of some inputs, one input after the other, and the position in `inputs` that each belongs to."""
        if self.keep_ngrams:
            places, owner = gathered(self.ngrams.offsets[inputs], np.diff(self.ngrams.offsets)[inputs])
            return self.ngrams.ids[places].astype(np.int64), owner
        found = Ngrams(self.vocabulary).count([self.text(int(i)) for i in inputs], threads=1)
        return found.ids.astype(np.int64), found.texts

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

    def cut_tokens(self, slots: int) -> EncodedBatch:
        """The docids as search sees them: each one's first `slots` tokens."""
        if int(self.tokens.lengths.max(initial=0)) <= slots:
            return self.tokens
        ids, owner = self.rows(np.arange(len(self.docids)), slots)
        return EncodedBatch(ids.astype(np.uint32), np.searchsorted(owner, np.arange(len(self.docids) + 1)))

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
