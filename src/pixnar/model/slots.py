"""Output slots: how one query becomes the vectors x_0 (all tokens of the docid) and x_1 … x_s (one per place)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from pixnar.model.encoder import Encoder

START_SCALE = 20.0  # phrase rows and query vectors start with length one; this turns their cosine into a logit


class MlpSlots(nn.Module):
    """x_t = scale_t · (h + MLP(h, t)): the query's pooled vector plus what a small network adds for the slot.

    The network starts at zero, so an untrained model scores phrases by their similarity to the query.
    """

    def __init__(self, width: int, slots: int, hidden: int = 1024, start_scale: float = START_SCALE) -> None:
        super().__init__()
        self.slots, self.hidden = slots, hidden
        self.inner = nn.Linear(width, hidden)
        self.places = nn.Parameter(torch.empty(slots + 1, hidden).normal_(0.0, 0.02))
        self.outer = nn.Linear(hidden, width)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)
        self.log_scale = nn.Parameter(torch.full((slots + 1,), math.log(start_scale)))

    def forward(self, pooled: Tensor) -> Tensor:
        """Vectors [B, s + 1, d] from pooled vectors [B, d]."""
        inner = nn.functional.gelu(self.inner(pooled)[:, None] + self.places)
        x: Tensor = (pooled[:, None] + self.outer(inner)) * self.log_scale.exp()[:, None]
        return x


class MaskSlots(nn.Module):
    """The paper's form: mask tokens behind the query, attended like words; x_0 is the first state, x_t mask t."""

    def __init__(self, width: int, slots: int, *, start_scale: float = 1.0) -> None:
        super().__init__()
        self.slots = slots
        self.dense = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.log_scale = nn.Parameter(torch.full((slots + 1,), math.log(start_scale)))

    def forward(self, encoder: Encoder, ids: Tensor, mask: Tensor) -> Tensor:
        """Vectors [B, s + 1, d] from word pieces [B, n], padded at their right."""
        places = mask.sum(1, keepdim=True) + torch.arange(self.slots, device=ids.device)  # before the padding
        ids, mask = (nn.functional.pad(part, (0, self.slots)) for part in (ids, mask))
        ids = ids.scatter(1, places, int(encoder.tokenizer.mask_token_id))
        states = encoder.states(ids, mask.scatter(1, places, 1)).float()
        rows = torch.arange(ids.shape[0], device=ids.device)[:, None]  # no len(): an export would keep it as a number
        states = torch.cat([states[:, :1], states[rows, places]], 1)
        x: Tensor = self.norm(nn.functional.gelu(self.dense(states))) * self.log_scale.exp()[:, None]
        return x
