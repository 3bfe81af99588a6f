"""Output slots: how one query becomes the vectors x_0 (all tokens of the docid) and x_1 … x_s (one per place)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from pixnar.model.encoder import Encoder

START_SCALE = 20.0  # phrase rows and query vectors start with length one; this turns their cosine into a logit


class MlpSlots(nn.Module):
    """x_t = scale_t · (u_t − center_t), where u_t is the unit vector of h + MLP_t(h) for the query's pooled vector h.

    The networks start at zero, so an untrained model scores phrases by their similarity to the query. x_0 has a network
    of its own: ranking documents trains it, and predicting the tokens of single places does not disturb it.
    `center` is the mean of u_t over training inputs, so that a token scores above 0 where it is likelier than usual.
    """

    def __init__(self, width: int, slots: int, hidden: int = 1024, start_scale: float = START_SCALE) -> None:
        super().__init__()
        self.slots, self.hidden = slots, hidden
        self.first_inner, self.first_outer = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.inner = nn.Linear(width, hidden)
        self.places = nn.Parameter(torch.empty(slots, hidden).normal_(0.0, 0.02))
        self.outer = nn.Linear(hidden, width)
        for layer in (self.first_outer, self.outer):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.log_scale = nn.Parameter(torch.full((slots + 1,), math.log(start_scale)))
        self.register_buffer("center", torch.zeros(slots + 1, width))
        self.center: Tensor

    def forward(self, pooled: Tensor) -> Tensor:
        """Vectors [B, s + 1, d] from pooled vectors [B, d]."""
        unit = torch.cat([self.unit_first(pooled)[:, None], self._unit_others(pooled)], 1)
        x: Tensor = (unit - self.center) * self.log_scale.exp()[:, None]
        return x

    def first(self, pooled: Tensor) -> Tensor:
        """x_0 alone, [B, d]."""
        x: Tensor = (self.unit_first(pooled) - self.center[0]) * self.log_scale[0].exp()
        return x

    def unit_first(self, pooled: Tensor) -> Tensor:
        """u_0 [B, d]."""
        added = self.first_outer(nn.functional.gelu(self.first_inner(pooled)))
        return nn.functional.normalize(pooled + added, dim=-1)

    def _unit_others(self, pooled: Tensor) -> Tensor:
        added = self.outer(nn.functional.gelu(self.inner(pooled)[:, None] + self.places))
        return nn.functional.normalize(pooled[:, None] + added, dim=-1)

    def of_others(self) -> list[nn.Parameter]:
        """The parameters that only x_1 … x_s have."""
        return [*self.inner.parameters(), self.places, *self.outer.parameters()]

    @torch.no_grad()
    def center_on(self, pooled: Tensor) -> None:
        """Set `center` to the mean of u_t over some inputs."""
        means = torch.cat([self.unit_first(pooled)[:, None], self._unit_others(pooled)], 1).mean(0)
        self.center.copy_(means)


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
