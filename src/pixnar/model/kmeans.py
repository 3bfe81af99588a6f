"""Spherical k-means of x_0 by Lloyd's rounds on a sample: the initial vectors c_i."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

SAMPLE = 64  # examples for each centre, at most
PIECE = 4096  # examples compared with all centres at once


def kmeans(
    x0: NDArray[np.float32], m: int, *, seed: int = 0, rounds: int = 8, device: torch.device | str = "cpu"
) -> Tensor:
    """M directions of x_0 [N, d], each as long as the mean x_0.

    All centres have one length because examples choose by inner product: a longer one would take its neighbours'.
    """
    generator = np.random.default_rng(seed)
    sample = np.sort(generator.choice(len(x0), min(len(x0), SAMPLE * m), replace=False))
    points = torch.from_numpy(x0[sample].astype(np.float32)).to(device)
    length = float(points.norm(dim=1).mean())
    points = F.normalize(points, dim=1)
    centres = points[_draw(generator, len(points), m)]
    for _ in range(rounds):
        members = assign(points, centres)
        sums = torch.zeros_like(centres).index_add_(0, members, points)
        empty = torch.bincount(members, minlength=m) == 0
        sums[empty] = points[_draw(generator, len(points), int(empty.sum()))]
        centres = F.normalize(sums, dim=1)
    return centres.mul_(length)


def assign(x0: Any, c: Tensor) -> Tensor:
    """The vector of c [m, d] with the largest inner product with each x_0 [N, d], a piece of x_0 at a time."""
    found = [(torch.as_tensor(x0[i : i + PIECE]).to(c) @ c.t()).argmax(dim=1) for i in range(0, len(x0), PIECE)]
    return torch.cat(found)


def _draw(generator: np.random.Generator, size: int, count: int) -> Tensor:
    return torch.from_numpy(generator.choice(size, count, replace=False))
