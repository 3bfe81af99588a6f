"""Decoder layers with key/value caches, which begin as copies of an encoder's layers; and a pointer to the source."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

_TINY = 1e-30  # a probability of copying whose logarithm is finite
_NEVER = -1e9  # a logit of what must not be; unlike -inf it cannot make nan

_PARTS = {
    "query": ("attention.self.query", "attention.self.query_proj", "attention.attn.q"),
    "key": ("attention.self.key", "attention.self.key_proj", "attention.attn.k"),
    "value": ("attention.self.value", "attention.self.value_proj", "attention.attn.v"),
    "out": ("attention.output.dense", "attention.attn.o"),
    "norm": ("attention.output.LayerNorm", "attention.LayerNorm"),
    "inner": ("intermediate.dense",),
    "outer": ("output.dense",),
    "outer_norm": ("output.LayerNorm",),
}
"""The parts of a layer and what encoders like BERT, DeBERTa and MPNet call them."""


class Attended(NamedTuple):
    """Keys and values [B, H, n, d] of what can be attended."""

    keys: Tensor
    values: Tensor

    def expand(self, batch: int) -> Attended:
        """The same for every row of a batch, where there is one row."""
        return Attended(*(part.expand(batch, -1, -1, -1) for part in self))

    def select(self, rows: Tensor) -> Attended:
        """Those of some rows."""
        return Attended(*(part[rows] for part in self))


class Attention(nn.Module):
    """Attention of several heads, with its residual and norm behind it, as BERT has it."""

    def __init__(self, width: int, heads: int, dropout: float, eps: float) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out, self.norm, self.dropout = nn.Linear(width, width), nn.LayerNorm(width, eps), nn.Dropout(dropout)

    def attended(self, states: Tensor) -> Attended:
        """The keys and values of states [B, n, D]."""
        return Attended(self._split(self.key(states)), self._split(self.value(states)))

    def forward(self, x: Tensor, attended: Attended, mask: Tensor | None) -> Tensor:
        """States [B, t, D] after attending; `mask` is True where that is allowed, [B or 1, 1, t or 1, n]."""
        found = nn.functional.scaled_dot_product_attention(self._split(self.query(x)), *attended, attn_mask=mask)
        added = self.out(found.transpose(1, 2).flatten(2))
        return self.norm(x + self.dropout(added))  # type: ignore[no-any-return]

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


class DecoderLayer(nn.Module):
    """Self-attention over what was generated, cross-attention over the source, and a feed-forward network."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float, eps: float) -> None:
        super().__init__()
        self.own = Attention(width, heads, dropout, eps)
        self.cross = Attention(width, heads, dropout, eps)
        self.inner, self.outer = nn.Linear(width, inner), nn.Linear(inner, width)
        self.outer_norm, self.dropout = nn.LayerNorm(width, eps), nn.Dropout(dropout)

    def forward(
        self, x: Tensor, past: Attended, mask: Tensor | None, source: Attended, source_mask: Tensor
    ) -> tuple[Tensor, Attended]:
        """States [B, t, D] after the layer, and the keys and values of the past with the new ones behind them."""
        new = self.own.attended(x)
        past = Attended(*(torch.cat(pair, 2) for pair in zip(past, new, strict=True)))
        x = self.cross(self.own(x, past, mask), source, source_mask)
        return self.outer_norm(x + self.dropout(self.outer(nn.functional.gelu(self.inner(x))))), past

    def copy_from(self, layer: nn.Module) -> bool:
        """Take the weights of an encoder's layer, its self-attention for both attentions; whether that was possible.

        Nothing is taken if any part is missing or has another shape.
        """
        parts = dict(layer.named_modules())
        named = {part: next((parts[name] for name in names if name in parts), None) for part, names in _PARTS.items()}
        pairs = [(getattr(attention, part), named[part]) for attention in (self.own, self.cross) for part in _ATTENTION]
        pairs += [(getattr(self, part), named[part]) for part in _PARTS if part not in _ATTENTION]
        if not all(other is not None and _shapes(own) == _shapes(other) for own, other in pairs):
            return False
        for own, other in pairs:
            assert other is not None
            own.load_state_dict(other.state_dict())
        return True


_ATTENTION = ("query", "key", "value", "out", "norm")


def _shapes(module: nn.Module) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in module.state_dict().items()}


def encoder_layers(body: nn.Module) -> list[nn.Module]:
    """The layers of a Hugging Face encoder: its longest list of modules."""
    lists = [module for module in body.modules() if isinstance(module, nn.ModuleList)]
    return list(max(lists, key=len, default=[]))


def spread(count: int, layers: int) -> list[int]:
    """The first, middle and last of some layers, or as many others as are wanted, evenly.

    >>> spread(3, 6), spread(3, 2), spread(1, 6)
    ([0, 2, 5], [0, 0, 1], [0])
    """
    return [number * (layers - 1) // max(1, count - 1) for number in range(count)]


class Pointer(nn.Module):
    """A mixture of the decoder's distribution with copying: attention on the tokens of the source, summed by token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.gate = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)
        nn.init.constant_(self.gate.bias, -1.0)

    def forward(self, log_p: Tensor, h: Tensor, keys: Tensor, tokens: Tensor) -> Tensor:
        """Log-probabilities [B, t, V] from those without copying.

        `h` [B, t, D] are the states of the decoder, `keys` [B, n, D] those of the source by `self.key`, and `tokens`
        [B, n] what is there to copy, -1 for nothing.
        """
        there = (tokens >= 0)[:, None]  # [B, 1, n]
        scores = (self.query(h) @ keys.mT) / keys.shape[-1] ** 0.5
        attention = scores.masked_fill(~there, _NEVER).softmax(-1).where(there, 0.0)
        places = tokens.clamp(min=0)[:, None].expand_as(attention)
        copied = torch.zeros_like(log_p).scatter_add(-1, places, attention.to(log_p.dtype))
        gate = self.gate(h).where(there.any(-1, keepdim=True), _NEVER)
        generated = log_p + nn.functional.logsigmoid(-gate)
        return torch.logaddexp(generated, copied.clamp(min=_TINY).log() + nn.functional.logsigmoid(gate))
