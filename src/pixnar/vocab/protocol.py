"""What every target vocabulary can do, ours and the baselines alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.uint32]
Counts = NDArray[np.uint64]


class EncodedBatch(NamedTuple):
    """Token ids of many texts in one array: text i is ``ids[offsets[i]:offsets[i + 1]]``."""

    ids: Ids
    offsets: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens per text."""
        return np.diff(self.offsets)

    def row(self, i: int) -> Ids:
        """The ids of text i."""
        return self.ids[self.offsets[i] : self.offsets[i + 1]]

    def rows(self) -> Iterator[Ids]:
        """The ids of each text in turn."""
        for i in range(len(self.offsets) - 1):
            yield self.row(i)

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]]) -> EncodedBatch:
        """Pack one list of ids per text."""
        offsets = np.zeros(len(lists) + 1, np.int64)
        np.cumsum([len(ids) for ids in lists], out=offsets[1:])
        flat = np.fromiter((i for ids in lists for i in ids), np.uint32, count=int(offsets[-1]))
        return cls(flat, offsets)


def mean_length(lengths: Counts) -> float:
    """Mean of a histogram of lengths such as ``vocabulary.docid_lengths``; 0 if it is empty.

    >>> mean_length(np.array([0, 1, 1], np.uint64))
    1.5
    """
    return float((lengths * np.arange(len(lengths))).sum() / max(int(lengths.sum()), 1))


@runtime_checkable
class TargetVocabulary(Protocol):
    """Turns a docid into target tokens and back.

    ``kind`` names the method ("phrase", "bpe", "unigram", "wordpiece"). ``lossless`` says whether
    ``decode(encode(x)) == normalize(x)`` for every string x. ``token_counts[v]`` is how often token v is used when the
    docids the vocabulary was built from are encoded with it (zero where that is unknown), and ``docid_lengths[n]`` how
    many of those docids have n tokens.
    """

    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def lossless(self) -> bool: ...  # noqa: D102
    @property
    def token_counts(self) -> Counts: ...  # noqa: D102
    @property
    def docid_lengths(self) -> Counts: ...  # noqa: D102
    def __len__(self) -> int: ...
    def token(self, token_id: int) -> str:
        """The token as a person would read it; pieces that continue a word start with ``##``."""
        ...

    def encode(self, text: str) -> Ids:
        """Normalise, then split into token ids."""
        ...

    def encode_batch(self, texts: Sequence[str], *, threads: int = 0) -> EncodedBatch:
        """`encode` for many texts on all cores (or on `threads`)."""
        ...

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """The text of a token sequence."""
        ...

    def save(self, path: str | PathLike[str]) -> None:
        """Write to one file, atomically."""
        ...
