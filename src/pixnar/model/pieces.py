"""Word pieces of phrases: rows that phrases share, so that what is learned of one helps others with the same words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

from pixnar import _native
from pixnar.vocab.protocol import EncodedBatch


class PieceRows(nn.Module):
    """One row per word piece that occurs in a phrase, and which pieces every token of the vocabulary has.

    The end of a docid, behind the last token, has none.
    """

    def __init__(self, rows: Tensor, of_tokens: EncodedBatch) -> None:
        super().__init__()
        self.rows = nn.Parameter(rows)
        self.of_tokens = EncodedBatch(of_tokens.ids, np.append(of_tokens.offsets, of_tokens.offsets[-1]))

    def forward(self, tokens: Tensor) -> Tensor:
        """The sum of the pieces' rows of each token [n]: [n, d]. Gradients of the rows are sparse."""
        ids = tokens.cpu().numpy()
        starts = self.of_tokens.offsets[ids]
        lengths = self.of_tokens.offsets[ids + 1] - starts
        begin = np.cumsum(lengths) - lengths
        places = np.arange(int(lengths.sum())) + np.repeat(starts - begin, lengths)
        used, position = np.unique(self.of_tokens.ids[places], return_inverse=True)
        device = self.rows.device
        some = F.embedding(torch.from_numpy(used.astype(np.int64)).to(device), self.rows, sparse=True)
        return F.embedding_bag(
            torch.from_numpy(position).to(device), some, torch.from_numpy(begin).to(device), mode="sum"
        )

    def add_to(self, rows: NDArray[np.float32], first: int = 0) -> None:
        """Add to rows of tokens, from token `first` on, those of their pieces."""
        count = min(len(rows), len(self.of_tokens.offsets) - 1 - first)
        low, high = self.of_tokens.offsets[first], self.of_tokens.offsets[first + count]
        offsets = self.of_tokens.offsets[first : first + count + 1] - low
        own = np.ascontiguousarray(self.rows.detach().float().cpu().numpy())
        sums = np.empty((count, rows.shape[1]), np.float32)
        _native.bag_sums(np.ascontiguousarray(self.of_tokens.ids[low:high]), offsets, own, sums, 0)
        rows[:count] += sums


def pieces_of_tokens(tokenizer: Any, texts: Sequence[str], at_once: int = 65_536) -> EncodedBatch:
    """The word pieces of each token's text, numbered from 0 without gaps in the order of the tokenizer's ids."""
    lists: list[Any] = []
    for begin in range(0, len(texts), at_once):
        lists += tokenizer(list(texts[begin : begin + at_once]), add_special_tokens=False)["input_ids"]
    batch = EncodedBatch.from_lists(lists)
    _, numbers = np.unique(batch.ids, return_inverse=True)
    return EncodedBatch(numbers.astype(np.uint32), batch.offsets)
