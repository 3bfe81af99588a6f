"""Small pieces that fit, sweeps and benchmarks share: the rule of a recipe, and vectors of a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from pixnar.model.nar import Nar
from pixnar.recipe import Recipe
from pixnar.scoring import ScoreRule

Floats = NDArray[np.float32]


def start_rule(recipe: Recipe) -> ScoreRule:
    """The rule a recipe starts from; settings that dev is to choose start at their best guess."""
    settings = recipe.scoring
    return ScoreRule(
        score=settings.score,  # type: ignore[arg-type]
        prior_weight=settings.prior_weight,
        copy=settings.copy,
        floor=settings.floor,  # type: ignore[arg-type]
        order="bag" if settings.order == "auto" else settings.order,  # type: ignore[arg-type]
        ends=settings.ends,
        length_norm=0.0 if settings.score == "composed" else settings.length_norm,
        aggregate=settings.aggregate,  # type: ignore[arg-type]
        scale=settings.scale,
        normalize=settings.normalize,
    )


@torch.inference_mode()
def x_of(model: Nar, texts: Sequence[str], pooled: Floats | None) -> Floats:
    """X [Q, s + 1, d] of normalised texts, from their pooled vectors where those are given."""
    if pooled is None:
        return model.slot_vectors(texts)
    return model.from_vectors(torch.from_numpy(pooled).to(model.device)).float().cpu().numpy()
