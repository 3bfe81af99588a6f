"""The paper's losses: l1 (each slot its token), l2 (x_0 all tokens), l3 (log² Z of each slot); the shortlist's l'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from pixnar.model.head import PhraseHead, dots

PADDING = -1  # in targets, after the end of a docid


@dataclass(frozen=True)
class Weights:
    """What each loss counts in the total; a loss of weight 0 is not computed. The defaults are the paper's."""

    l1: float = 1.0
    l2: float = 0.25
    l3: float = 1.0


class LossParts(NamedTuple):
    """The losses before weighting, each a mean over examples of a sum over slots; 0 where not computed."""

    l1: Tensor
    l2: Tensor
    l3: Tensor
    log_z_abs: Tensor  # mean |log Z| over the slots 1 … s, without gradient; nan where not computed
    tokens: Tensor  # how many targets the batch holds, end tokens included

    def total(self, weights: Weights) -> Tensor:
        """The weighted sum, to be minimised."""
        return weights.l1 * self.l1 + weights.l2 * self.l2 + weights.l3 * self.l3


class TokenSample(NamedTuple):
    """Sorted ids that stand for the whole vocabulary, each with the log of one over its chance to be in."""

    ids: Tensor
    log_weights: Tensor

    def to(self, device: torch.device | str) -> TokenSample:
        """The same on another device."""
        return TokenSample(self.ids.to(device), self.log_weights.to(device))


class Sampler:
    """Draws the tokens over which Z is estimated: `size` draws with replacement, and a batch's targets for sure.

    Tokens are drawn in proportion to count^power, mixed with a share `uniform` of equal chances. A token that is drawn
    at least once, which happens with chance π = 1 − (1 − q)^size, weighs 1/π; a target weighs 1. So the estimate of Z
    is unbiased (log Z is then a little low on average, and l3 with it a little off: the larger `size`, the less).
    The draw depends on the seed and on `step` only, which counts the draws: set it to resume.
    """

    def __init__(
        self, counts: ArrayLike, size: int, seed: int = 0, *, power: float = 0.5, uniform: float = 0.25
    ) -> None:
        chances = np.asarray(counts, dtype=np.float64) ** power
        if chances.ndim != 1 or not chances.size or size < 1 or not 0 < uniform <= 1:
            raise ValueError(
                f"a sampler needs counts [V], size >= 1 and 0 < uniform <= 1, not {chances.shape}, {size}, {uniform}"
            )
        chances *= (1 - uniform) / max(chances.sum(), 1e-300)
        chances += uniform / chances.size
        self._bounds = np.cumsum(chances)
        with np.errstate(divide="ignore"):  # a vocabulary of one token: chance 1
            self._log_weights = -np.log(-np.expm1(size * np.log1p(-np.minimum(chances, 1)))).astype(np.float32)
        self.size, self.seed, self.step = size, seed, 0

    def draw(self, targets: Tensor) -> TokenSample:
        """A sample for a batch with these targets (negative ones are padding), on the targets' device."""
        sure = np.unique(targets.detach().cpu().numpy())
        sure = sure[np.searchsorted(sure, 0) :]
        ids = np.union1d(sure, self._drawn())
        weights = self._log_weights[ids]
        weights[np.searchsorted(ids, sure)] = 0.0
        return TokenSample(torch.from_numpy(ids), torch.from_numpy(weights)).to(targets.device)

    def _drawn(self) -> NDArray[np.int64]:
        generator = np.random.default_rng((self.seed, self.step))
        self.step += 1
        points = np.sort(generator.random(self.size)) * self._bounds[-1]
        places: NDArray[np.int64] = np.searchsorted(self._bounds, points, side="right")
        return np.minimum(places, self._bounds.size - 1)


def losses(
    x: Tensor,
    targets: Tensor,
    head: PhraseHead,
    weights: Weights | None = None,
    sample: TokenSample | None = None,
    *,
    chunk: int = 0,
) -> LossParts:
    """The three losses of vectors x [B, s + 1, d] against targets [B, s]: a docid's tokens, its end, then `PADDING`.

    l1 and l2 run over the tokens and the end, l3 over all s slots. With a sample, Z is estimated from it. With a head
    in shards all processes get the same losses, and the gradients of their own rows; of x, each its own part.
    """
    weights = weights or Weights()
    batch, slots = targets.shape
    if x.shape[:2] != (batch, slots + 1):
        raise ValueError(f"targets {list(targets.shape)} need vectors [{batch}, {slots + 1}, d], not {list(x.shape)}")
    by_slot, by_first = bool(weights.l1 or weights.l3), bool(weights.l2)
    used = x[:, 0 if by_first else 1 : None if by_slot else 1]
    log_z, rows, bias = _score(used.flatten(0, 1), targets, head, sample, chunk)
    log_z = log_z.view(batch, used.shape[1])
    real = targets >= 0
    nothing = log_z.new_zeros(())
    l1 = l2 = l3 = nothing
    log_z_abs = log_z.new_full((), torch.nan)
    if by_slot:
        slot_z = log_z[:, -slots:]
        log_z_abs = slot_z.detach().abs().mean()
        if weights.l1:
            flat = dots(x[:, 1:].flatten(0, 1), rows.flatten(0, 1).unsqueeze(1)).view(batch, slots)
            l1 = _mean_of_sums(slot_z - head.add_shards(_plus(flat, bias)), real)
        if weights.l3:
            l3 = slot_z.square().sum() / batch
    if by_first:
        l2 = _mean_of_sums(log_z[:, :1] - head.add_shards(dots(x[:, 0], rows, bias)), real)
    return LossParts(l1, l2, l3, log_z_abs, real.sum())


def shortlist_loss(
    c: Tensor, x0: Tensor, targets: Tensor, head: PhraseHead, sample: TokenSample | None = None, *, chunk: int = 0
) -> tuple[Tensor, Tensor]:
    """The paper's l': each example's targets under the vector of c [m, d] nearest to its x_0; and which that was."""
    with torch.no_grad(), torch.autocast(x0.device.type, enabled=False):
        assignment = (x0.to(c.dtype) @ c.t()).argmax(dim=1)
    chosen, place = torch.unique(assignment, return_inverse=True)
    near = c[chosen]
    log_z, rows, bias = _score(near, targets, head, sample, chunk)
    gaps = log_z[place][:, None] - head.add_shards(dots(near[place], rows, bias))
    return _mean_of_sums(gaps, targets >= 0), assignment


def _score(
    x: Tensor, targets: Tensor, head: PhraseHead, sample: TokenSample | None, chunk: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Log Z of each x [N], and the row [B, s, d] and bias [B, s] of each target; padding gets those of some token.

    Rows and bias are those of this shard: what is computed from them is to be added up.
    """
    if sample is None:
        log_z, rows, bias = head.score(x, targets.clamp(min=0).flatten(), chunk)
    else:
        positions = _positions(targets, sample).flatten()
        log_z, rows, bias = head.score_sampled(x, positions, sample.ids, sample.log_weights, chunk)
    return log_z, rows.view(*targets.shape, -1), None if bias is None else bias.view(targets.shape)


def _positions(targets: Tensor, sample: TokenSample) -> Tensor:
    positions = torch.searchsorted(sample.ids, targets.contiguous()).clamp(max=len(sample.ids) - 1)
    if bool(((sample.ids[positions] != targets) & (targets >= 0)).any()):
        raise ValueError("the sample lacks some of the batch's targets; draw it with these targets")
    return positions


def _plus(values: Tensor, bias: Tensor | None) -> Tensor:
    return values if bias is None else values + bias


def _mean_of_sums(values: Tensor, real: Tensor) -> Tensor:
    """Mean over examples of the sum over the real targets; what stands at padding, even nan, does not count."""
    return values.masked_fill(~real, 0.0).sum() / len(values)
