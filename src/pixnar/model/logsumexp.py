"""Chunked log-sum-exp: log Z over a vocabulary of millions, a chunk at a time, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

CHUNK_FLOATS = 16_000_000  # logits held at once: 64 MB in float32
CHUNK_FLOATS_CPU = 2_000_000  # on a processor what stays in its cache is faster by a quarter


def chunked_logsumexp(x: Tensor, rows: Tensor, bias: Tensor | None = None, *, chunk: int = 0) -> Tensor:
    """The log of Σ_v exp(x·rows_v + bias_v) for each x [N, d]; holds N × chunk logits, never N × V.

    A shard of the rows gives that shard's part: see `ProcessGroup.merge`. Under autocast the products are of
    values rounded to the autocast type; all sums, and the result, are float32 or wider. Can be differentiated once.
    """
    log_z: Tensor = _LogSumExp.apply(x, rows, bias, None, chunk)[0]  # type: ignore[no-untyped-call]
    return log_z


def logsumexp_and_rows(
    x: Tensor, rows: Tensor, bias: Tensor | None, ids: Tensor, *, chunk: int = 0
) -> tuple[Tensor, Tensor, Tensor | None]:
    """`chunked_logsumexp`, with rows[ids] and bias[ids] beside it.

    Both share one gradient of the size of the rows; taken apart, the gather would make a second one.
    """
    log_z, picked, picked_bias = _LogSumExp.apply(x, rows, bias, ids, chunk)  # type: ignore[no-untyped-call]
    return log_z, picked, picked_bias


def wide(dtype: torch.dtype) -> torch.dtype:
    """The type in which sums are kept: float32, or float64 if that is what came in."""
    return torch.promote_types(dtype, torch.float32)


class _LogSumExp(torch.autograd.Function):
    """Saves the inputs and log Z only; the backward pass makes each chunk of logits again."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, rows: Tensor, bias: Tensor | None, ids: Tensor | None, chunk: int
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        ctx.set_materialize_grads(False)
        ctx.chunk = chunk or _chunk_for(x)
        ctx.narrow = _product_type(x, rows)
        with torch.autocast(x.device.type, enabled=False):
            log_z = _forward(x, rows, bias, ctx.chunk, ctx.narrow)
        ctx.save_for_backward(x, rows, bias, ids, log_z)
        if ids is None:
            return log_z, None, None
        return log_z, rows[ids], None if bias is None else bias[ids]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("chunked_logsumexp can be differentiated only once; do not use create_graph with it")
        x, rows, bias, ids, log_z = ctx.saved_tensors
        needs = ctx.needs_input_grad[:3]
        with torch.autocast(x.device.type, enabled=False):
            sums = _backward(x, rows, bias, log_z, grads[0], needs, ctx.chunk, ctx.narrow)
        for whole, picked in zip(sums[1:], grads[1:], strict=True):
            if whole is not None and picked is not None:
                whole.index_add_(0, ids, picked.to(whole.dtype))
        return *sums, None, None


def _forward(x: Tensor, rows: Tensor, bias: Tensor | None, chunk: int, narrow: torch.dtype) -> Tensor:
    low = torch.finfo(wide(narrow)).min  # stands in for -inf, whose differences are not numbers
    top = torch.full((len(x),), low, dtype=wide(narrow), device=x.device)
    total = torch.zeros_like(top)
    for _, logits in _chunks(x, rows, bias, chunk, narrow):
        new_top = torch.maximum(top, logits.amax(dim=1))
        total.mul_(torch.exp(top - new_top)).add_(logits.sub_(new_top[:, None]).exp_().sum(dim=1))
        top = new_top
    return top + total.log()


def _backward(
    x: Tensor,
    rows: Tensor,
    bias: Tensor | None,
    log_z: Tensor,
    grad: Tensor | None,
    needs: Sequence[bool],
    chunk: int,
    narrow: torch.dtype,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    make = torch.zeros_like if grad is None else torch.empty_like  # every row's gradient is written once
    grad_x = torch.zeros(x.shape, dtype=log_z.dtype, device=x.device) if needs[0] else None
    grad_rows = make(rows) if needs[1] else None
    grad_bias = make(bias) if bias is not None and needs[2] else None
    if grad is not None:
        finite = log_z.clamp(min=torch.finfo(log_z.dtype).min)
        narrow_x = x.to(narrow)
        for piece, logits in _chunks(x, rows, bias, chunk, narrow):
            weights = logits.sub_(finite[:, None]).exp_().mul_(grad[:, None])
            if grad_x is not None:
                grad_x += _product(weights, rows[piece].to(narrow))
            if grad_rows is not None:
                grad_rows[piece] = _product(weights.t(), narrow_x)
            if grad_bias is not None:
                grad_bias[piece] = weights.sum(dim=0)
    return None if grad_x is None else grad_x.to(x.dtype), grad_rows, grad_bias


def _chunks(
    x: Tensor, rows: Tensor, bias: Tensor | None, chunk: int, narrow: torch.dtype
) -> Iterator[tuple[slice, Tensor]]:
    """Each piece of the vocabulary with its logits; the caller may overwrite them."""
    left = x.to(narrow)
    for start in range(0, len(rows), chunk):
        piece = slice(start, start + chunk)
        logits = _product(left, rows[piece].to(narrow).t())
        yield piece, logits if bias is None else logits.add_(bias[piece])


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Matrix product with a wide result; `left` may be wider than `right`, which sets the type of the factors."""
    if right.dtype == wide(right.dtype):
        return left @ right
    if right.is_cuda:
        return torch.mm(left.to(right.dtype), right, out_dtype=torch.float32)
    return left.float() @ right.float()  # a processor without narrow arithmetic is hundreds of times slower in it


def _product_type(x: Tensor, rows: Tensor) -> torch.dtype:
    kind = x.device.type
    if torch.is_autocast_enabled(kind) and wide(x.dtype) == torch.float32:
        return torch.get_autocast_dtype(kind)
    return torch.promote_types(x.dtype, rows.dtype)


def _chunk_for(x: Tensor) -> int:
    floats = CHUNK_FLOATS_CPU if x.device.type == "cpu" else CHUNK_FLOATS
    return max(1, floats // max(1, len(x)))
