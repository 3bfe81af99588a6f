"""The phrase head: one vector per phrase token, with rows shared by word pieces, and what a slot's vector scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

from pixnar import _native
from pixnar.model.logsumexp import chunked_logsumexp, logsumexp_and_rows, wide
from pixnar.model.process_group import SINGLE, ProcessGroup
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


class PhraseHead(nn.Module):
    """One row per token of the vocabulary and a last one for the end of a docid; logit = x·row (+ bias).

    `bias` is a separate float32 parameter, or None as in the paper. With `sparse`, `select`, `logits_at` and
    `log_z_sampled` give the rows sparse gradients, so a step with a sampled loss never holds V × d of them.

    A head may hold a shard: rows `first` … `first + len(rows)` out of `total`. Ids are always those of the whole
    vocabulary. An id outside the shard selects a zero row and scores 0, so the sum over shards of `logits_at` is
    the whole head's; the log Z of the shards are added up by their exponentials. Every answer passes through
    `add_shards` or `merge_shards`, which do nothing here: a head over several processes (`ShardedHead`) overrides the
    two with all-reduces that can be differentiated, and the losses work unchanged.

    While documents are ranked in training, `pieces` may hold rows of word pieces: the row of a token is then its own
    plus those of its pieces. Only `rows_of` and `arrays` know of them; `fold` adds them to the rows for good.
    """

    group: ProcessGroup = SINGLE  # the processes that hold the other shards

    def __init__(
        self,
        rows: Tensor,
        bias: Tensor | None = None,
        *,
        first: int = 0,
        total: int | None = None,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        if rows.dim() != 2 or (bias is not None and bias.shape != rows.shape[:1]):
            wrong = "none" if bias is None else list(bias.shape)
            raise ValueError(f"a head needs rows [n, d] and bias [n] or none, not {list(rows.shape)} and {wrong}")
        self.first, self.total, self.sparse = first, first + len(rows) if total is None else total, sparse
        if first < 0 or first + len(rows) > self.total:
            raise ValueError(f"rows {first} to {first + len(rows)} do not fit in a vocabulary of {self.total}")
        self.rows = nn.Parameter(rows)
        self.bias = None if bias is None else nn.Parameter(bias)
        self.pieces: PieceRows | None = None

    @classmethod
    def random(
        cls,
        total: int,
        width: int,
        std: float = 0.02,
        generator: torch.Generator | None = None,
        bias: Any = None,
        *,
        sparse: bool = False,
    ) -> PhraseHead:
        """Rows drawn from a normal distribution; `total` counts the end token."""
        rows = torch.empty(total, width).normal_(0.0, std, generator=generator)
        return cls(rows, _floats(bias), sparse=sparse)

    @classmethod
    def from_vectors(cls, vectors: Any, bias: Any = None, scale: float = 1.0, *, sparse: bool = False) -> PhraseHead:
        """A copy of given vectors [total, width] times `scale`, e.g. the encoder's own vectors of the phrases."""
        rows = _floats(vectors)
        if rows is None:
            raise ValueError("a head cannot be made from no vectors")
        return cls(rows.mul_(scale), _floats(bias), sparse=sparse)

    @property
    def eos(self) -> int:
        """The id of the end of a docid: the size of the vocabulary."""
        return self.total - 1

    @property
    def width(self) -> int:
        """Numbers per row."""
        return self.rows.shape[1]

    def arrays(self) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """Rows and bias for search, pieces added; on a CPU and without pieces they share the head's memory."""
        rows, bias = self.rows.detach().float().cpu().numpy(), None
        if self.pieces is not None:
            rows = rows.copy()
            self.pieces.add_to(rows, self.first)
        if self.bias is not None:
            bias = self.bias.detach().float().cpu().numpy()
        return rows, bias

    def rows_of(self, ids: Tensor) -> Tensor:
        """The whole rows [K, d] of some sorted tokens: of all shards, with their pieces. Gradients are sparse."""
        local = self._local(ids)
        rows = F.embedding(local, self.rows, sparse=True)
        rows = self.add_shards(rows if self._whole else rows * self._inside(ids)[:, None])
        return rows if self.pieces is None else rows + self.pieces(ids)

    def bias_of(self, ids: Tensor) -> Tensor | None:
        """The bias [K] of some sorted tokens: of all shards. Gradients are sparse."""
        if self.bias is None:
            return None
        bias = torch.gather(self.bias, 0, self._local(ids), sparse_grad=True)
        return self.add_shards(bias if self._whole else bias * self._inside(ids))

    def written(self) -> PhraseHead:
        """A head with the pieces added to the rows: this one where there are none."""
        if self.pieces is None:
            return self
        rows, bias = self.arrays()
        made = PhraseHead(torch.from_numpy(rows), None if bias is None else torch.from_numpy(bias))
        return made.requires_grad_(False).to(self.rows.device)

    @torch.no_grad()
    def fold(self) -> None:
        """Add the pieces to the rows, in place."""
        if self.pieces is not None:
            self.rows.copy_(torch.from_numpy(self.arrays()[0]))
            self.pieces = None

    def merge_shards(self, log_z: Tensor) -> Tensor:
        """The whole log Z from this shard's part; here they are the same."""
        return log_z

    def add_shards(self, part: Tensor) -> Tensor:
        """The sum over the shards of a part; here they are the same."""
        return part

    def log_z(self, x: Tensor, chunk: int = 0) -> Tensor:
        """The log of Σ_v exp(logit of v) for each x [N, d]."""
        return self.merge_shards(chunked_logsumexp(x, self.rows, self.bias, chunk=chunk))

    def log_z_sampled(self, x: Tensor, ids: Tensor, log_weights: Tensor, chunk: int = 0) -> Tensor:
        """The estimate log Σ_{v in ids} exp(logit of v + log weight); a weight is one over the chance to be drawn."""
        rows, bias = self._select(ids)
        return self._log_z_of(x, ids, rows, bias, log_weights, chunk)

    def score(self, x: Tensor, ids: Tensor, chunk: int = 0) -> tuple[Tensor, Tensor, Tensor | None]:
        """`log_z(x)` [N], and rows[ids] and bias[ids] [M], with one dense gradient of the rows for both.

        Rows of other shards are zero and are not added up: products with them may be, which are smaller.
        """
        log_z, rows, bias = logsumexp_and_rows(x, self.rows, self.bias, self._local(ids), chunk=chunk)
        return self.merge_shards(log_z), *self._masked(ids, rows, bias)

    def score_sampled(
        self, x: Tensor, positions: Tensor, ids: Tensor, log_weights: Tensor, chunk: int = 0
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """`log_z_sampled(x, ids, …)` [N], and rows and bias of ids[positions] [M], with one gather for both.

        Rows of other shards are zero and are not added up, as in `score`.
        """
        rows, bias = self._select(ids)
        log_z = self._log_z_of(x, ids, rows, bias, log_weights, chunk)
        return log_z, F.embedding(positions, rows), None if bias is None else bias[positions]

    def logits_at(self, x: Tensor, ids: Tensor) -> Tensor:
        """The logit of each of ids [N, K] for its x [N, d]; gathers N × K rows."""
        rows, bias = self._select(ids.flatten())
        return self.add_shards(dots(x, rows.view(*ids.shape, -1), None if bias is None else bias.view(ids.shape)))

    def logits_of(self, x: Tensor, ids: Tensor) -> Tensor:
        """The logits [N, K] of all of some sorted ids [K] for each x [N, d]."""
        rows, bias = self._select(ids)
        logits = x @ rows.t()
        return self.add_shards(logits if bias is None else logits + bias)

    def logits(self, x: Tensor) -> Tensor:
        """The logits of all rows here for each x: N × V numbers, for small vocabularies and checks."""
        kind = wide(torch.promote_types(x.dtype, self.rows.dtype))
        with torch.autocast(x.device.type, enabled=False):
            return F.linear(x.to(kind), self.rows.to(kind), None if self.bias is None else self.bias.to(kind))

    def extra_repr(self) -> str:
        """Shape and place, for printing."""
        return f"{len(self.rows)} x {self.width}, first={self.first}, total={self.total}, sparse={self.sparse}"

    @property
    def _whole(self) -> bool:
        return len(self.rows) == self.total

    def _inside(self, ids: Tensor) -> Tensor:
        return (ids >= self.first) & (ids < self.first + len(self.rows))

    def _local(self, ids: Tensor) -> Tensor:
        """Places in this shard's rows; ids of other shards become some valid place, to be masked."""
        return ids if self._whole else (ids - self.first).clamp(0, len(self.rows) - 1)

    def _masked(self, ids: Tensor, rows: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if self._whole:
            return rows, bias
        inside = self._inside(ids)
        return rows * inside[:, None], None if bias is None else bias * inside

    def _select(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        local = self._local(ids)
        rows = F.embedding(local, self.rows, sparse=self.sparse)
        bias = None if self.bias is None else torch.gather(self.bias, 0, local, sparse_grad=self.sparse)
        return self._masked(ids, rows, bias)

    def _log_z_of(
        self, x: Tensor, ids: Tensor, rows: Tensor, bias: Tensor | None, log_weights: Tensor, chunk: int
    ) -> Tensor:
        offset = log_weights.to(wide(rows.dtype))
        if not self._whole:
            offset = offset.masked_fill(~self._inside(ids), -torch.inf)
        if bias is not None:
            offset = offset + bias
        return self.merge_shards(chunked_logsumexp(x, rows, offset, chunk=chunk))


def dots(x: Tensor, rows: Tensor, bias: Tensor | None = None) -> Tensor:
    """The products of x [N, d] with each of its own rows [N, K, d], plus bias [N, K]; float32 or wider."""
    kind = wide(torch.promote_types(x.dtype, rows.dtype))
    with torch.autocast(x.device.type, enabled=False):
        products = torch.bmm(rows.to(kind), x.to(kind).unsqueeze(-1)).squeeze(-1)
    return products if bias is None else products + bias


def _floats(values: Any) -> Tensor | None:
    """A float32 copy of an array or a tensor."""
    if values is None:
        return None
    if isinstance(values, Tensor):
        return values.detach().clone().float()
    return torch.from_numpy(np.array(values, dtype=np.float32))
