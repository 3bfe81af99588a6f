"""Sharded phrase head: each process holds some of the rows, and none ever has all of them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from safetensors import safe_open
from torch import Tensor

from pixnar.base.storage import reserve, sync_folder
from pixnar.model.head import PhraseHead
from pixnar.model.logsumexp import chunked_logsumexp, wide
from pixnar.model.process_group import ProcessGroup

_DRAWN = 4096  # rows drawn at a time; the numbers come out as if they were drawn in one go


class ShardedHead(PhraseHead):
    """The rows of this process: `group.rows(total)` of them.

    x is the same in all processes, and so is every answer. Backward leaves in each process the whole gradient of its
    own rows, and of x the part that goes through them: `group.gather` adds the parts up.
    """

    def __init__(
        self, rows: Tensor, bias: Tensor | None, *, total: int, group: ProcessGroup, sparse: bool = False
    ) -> None:
        super().__init__(rows, bias, first=group.rows(total)[0], total=total, sparse=sparse)
        if group.rows(total)[1] - self.first != len(rows):
            raise ValueError(f"process {group.rank} holds rows {group.rows(total)}, not {len(rows)} of them")
        self.group = group

    def merge_shards(self, log_z: Tensor) -> Tensor:
        """The whole log Z."""
        return self.group.merge(log_z)

    def add_shards(self, part: Tensor) -> Tensor:
        """The sum over the processes."""
        return self.group.add(part)

    def rows_of(self, ids: Tensor) -> Tensor:
        """See `PhraseHead`; rows of other processes get no gradient here, not even one of zero."""
        piece = self._piece(ids)
        own = F.embedding(ids[piece] - self.first, self.rows, sparse=True)
        rows = self.add_shards(F.pad(own, (0, 0, piece.start, len(ids) - piece.stop)))
        return rows if self.pieces is None else rows + self.pieces(ids)

    def bias_of(self, ids: Tensor) -> Tensor | None:
        """See `PhraseHead`."""
        if self.bias is None:
            return None
        piece = self._piece(ids)
        own = torch.gather(self.bias, 0, ids[piece] - self.first, sparse_grad=True)
        return self.add_shards(F.pad(own, (piece.start, len(ids) - piece.stop)))

    def written(self) -> PhraseHead:
        """See `PhraseHead`: the rows of this process."""
        if self.pieces is None:
            return self
        rows, bias = self.arrays()
        offsets = None if bias is None else torch.from_numpy(bias)
        made = ShardedHead(torch.from_numpy(rows), offsets, total=self.total, group=self.group)
        return made.requires_grad_(False).to(self.rows.device)

    def log_z_sampled(self, x: Tensor, ids: Tensor, log_weights: Tensor, chunk: int = 0) -> Tensor:
        """See `PhraseHead`; `ids` are sorted, and each process looks at its own."""
        return self._own_log_z(x, *self._own(ids), log_weights, chunk)

    def score_sampled(
        self, x: Tensor, positions: Tensor, ids: Tensor, log_weights: Tensor, chunk: int = 0
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """See `PhraseHead`; `ids` are sorted, and each process looks at its own."""
        piece, rows, bias = self._own(ids)
        log_z = self._own_log_z(x, piece, rows, bias, log_weights, chunk)
        count = piece.stop - piece.start
        if not count:
            none = positions.new_zeros(positions.shape, dtype=rows.dtype)
            return log_z, none[:, None].expand(-1, self.width), None if bias is None else none
        inside = (positions >= piece.start) & (positions < piece.stop)
        local = (positions - piece.start).clamp(0, count - 1)
        picked = F.embedding(local, rows) * inside[:, None]
        return log_z, picked, None if bias is None else bias[local] * inside

    def logits_of(self, x: Tensor, ids: Tensor) -> Tensor:
        """See `PhraseHead`."""
        piece, rows, bias = self._own(ids)
        logits = x @ rows.t()
        logits = logits if bias is None else logits + bias
        return self.add_shards(F.pad(logits, (piece.start, len(ids) - piece.stop)))

    def _own(self, ids: Tensor) -> tuple[slice, Tensor, Tensor | None]:
        """Where in sorted ids those of this process stand, and their rows and bias."""
        piece = self._piece(ids)
        local = ids[piece] - self.first
        rows = F.embedding(local, self.rows, sparse=self.sparse)
        bias = None if self.bias is None else torch.gather(self.bias, 0, local, sparse_grad=self.sparse)
        return piece, rows, bias

    def _piece(self, ids: Tensor) -> slice:
        """Where in sorted ids those of this process stand."""
        ends = torch.tensor([self.first, self.first + len(self.rows)], device=ids.device)
        begin, end = torch.searchsorted(ids, ends).tolist()
        return slice(begin, end)

    def _own_log_z(
        self, x: Tensor, piece: slice, rows: Tensor, bias: Tensor | None, log_weights: Tensor, chunk: int
    ) -> Tensor:
        offset = log_weights[piece].to(wide(rows.dtype))
        return self.merge_shards(chunked_logsumexp(x, rows, offset if bias is None else offset + bias, chunk=chunk))


def shard_of_vectors(
    vectors: NDArray[Any], bias: NDArray[np.float32] | None, total: int, group: ProcessGroup
) -> ShardedHead:
    """A head whose rows here start as the given ones; `bias` is that of all rows."""
    first, last = group.rows(total)
    offsets = None if bias is None else torch.from_numpy(bias[first:last].copy())
    return ShardedHead(torch.from_numpy(vectors.astype(np.float32)), offsets, total=total, group=group)


def random_shard(
    total: int, width: int, bias: NDArray[np.float32] | None, group: ProcessGroup, std: float = 0.02
) -> ShardedHead:
    """The rows here of those that `PhraseHead.random` would draw: all are drawn, these are kept."""
    first, last = group.rows(total)
    rows = np.empty((last - first, width), np.float32)
    start = 0
    while start < total:
        end = total if total - start < 2 * _DRAWN else start + _DRAWN  # a short last piece would be drawn otherwise
        drawn = torch.empty(end - start, width).normal_(0.0, std)
        low, high = max(start, first), min(end, last)
        if low < high:
            rows[low - first : high - first] = drawn[low - start : high - start].numpy()
        start = end
    return shard_of_vectors(rows, bias, total, group)


def write_whole(head: PhraseHead, path: Path) -> Callable[[], PhraseHead]:
    """Put the rows of all processes into one file, each its own; what maps them again as a head on the processor.

    The head that comes out lies in the file, not in the memory of any process or device.
    """
    shape = (head.total, head.width)
    group, last = head.group, head.first + len(head.rows)
    if group.first:
        reserve(path, 4 * math.prod(shape))
    group.wait()
    rows, bias = head.arrays()
    whole = np.memmap(path, np.float32, "r+", shape=shape)
    whole[head.first : last] = rows
    whole.flush()
    offsets = None
    if bias is not None:  # a number per token: small enough for everybody
        offsets = torch.zeros(head.total)
        offsets[head.first : last] = torch.from_numpy(bias)
        group.add_up([offsets])
    group.wait()

    def opened() -> PhraseHead:
        mapped = torch.from_numpy(np.memmap(path, np.float32, "c", shape=shape))
        return PhraseHead(mapped, offsets).requires_grad_(False)

    return opened


def save_shards(path: Path, head: PhraseHead, others: Mapping[str, Tensor]) -> None:
    """A safetensors file of the whole head and some other tensors: each process writes its rows to their place in it.

    The first one writes the rest; the file gets its name when all of it is on disk.
    """
    group = head.group
    rows, bias = head.arrays()
    parts = {"head.rows": rows} | ({} if bias is None else {"head.bias": bias})
    small = {name: tensor.detach().float().cpu().contiguous().numpy() for name, tensor in others.items()}
    shapes = {name: (head.total, *part.shape[1:]) for name, part in parts.items()}
    shapes |= {name: part.shape for name, part in small.items()}
    header, offsets = _header(shapes)
    aside = path.with_name(f".{path.name}.part")
    if group.first:
        reserve(aside, max(end for _, end in offsets.values()))
    group.wait()
    with open(aside, "rb+") as file:
        if group.first:
            file.write(header)
        for name, part in parts.items():
            file.seek(offsets[name][0] + head.first * part[0].nbytes)
            part.tofile(file)
        for name, part in small.items() if group.first else ():
            file.seek(offsets[name][0])
            part.tofile(file)
        file.flush()
        os.fsync(file.fileno())
    group.wait()
    if group.first:
        os.replace(aside, path)
        sync_folder(path.parent)


def _header(shapes: Mapping[str, tuple[int, ...]]) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """The beginning of a safetensors file of 32-bit floats, and from where to where in the file each tensor goes."""
    entries: dict[str, Any] = {}
    place = 0
    for name, shape in shapes.items():
        end = place + 4 * math.prod(shape)
        entries[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    start = 8 + len(text)
    offsets = {
        name: (start + entry["data_offsets"][0], start + entry["data_offsets"][1]) for name, entry in entries.items()
    }
    return len(text).to_bytes(8, "little") + text, offsets


def load_shard(path: Path, group: ProcessGroup) -> tuple[ShardedHead, dict[str, Tensor]]:
    """The rows of this process from a file of a whole head, and the tensors beside it."""
    with safe_open(path, "pt") as file:
        names = set(file.keys())
        whole = file.get_slice("head.rows")
        total = whole.get_shape()[0]
        first, last = group.rows(total)
        bias = file.get_slice("head.bias")[first:last] if "head.bias" in names else None
        head = ShardedHead(whole[first:last], bias, total=total, group=group)
        return head, {name: file.get_tensor(name) for name in names if not name.startswith("head.")}
