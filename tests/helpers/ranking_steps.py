"""Steps of training by ranking on a small corpus."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pixnar.model.build import Docids, build_model
from pixnar.model.encoder import Encoder
from pixnar.model.features import FeatureCache
from pixnar.model.losses import Weights
from pixnar.model.nar import MlpSlots, Nar
from pixnar.train.ranking import RankingOptions, RankingStep
from tests.helpers.training_runs import SLOTS, TrainingSetup

SIZE = 12
ONLY = Weights(0.0, 0.0, 0.0)
Floats = NDArray[np.float32]


def model_of(made: TrainingSetup, *, pieces: bool = True) -> Nar:
    """Solved rows with word pieces, and slots that differ."""
    assert made.data.vectors is not None
    docids = Docids(
        tokens=made.data.cut_tokens(SLOTS), vectors=made.data.vectors[: len(made.data.docids)], pieces=pieces
    )
    features = FeatureCache(Encoder.load(made.encoder.name), None)
    model = build_model(
        made.data.vocabulary, features, made.priors, slots=SLOTS, head="solved", hidden=16, docids=docids
    )
    torch.manual_seed(4)
    with torch.no_grad():
        for parameter in model.slots.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        if model.head.pieces is not None:
            model.head.pieces.rows.add_(0.1 * torch.randn_like(model.head.pieces.rows))
    return model.eval()


def step_of(made: TrainingSetup, model: Nar | None = None, seed: int = 0, **changes: Any) -> RankingStep:
    settings: dict[str, Any] = {"weights": ONLY, "mine_every": 5} | changes
    pairs = made.data.pairs(seed=seed, self_share=0.3)
    return RankingStep(model or model_of(made), made.data, pairs, RankingOptions(**settings), seed)


def first_of(step: RankingStep, inputs: NDArray[np.int64]) -> Tensor:
    slots = step.model.slots
    assert isinstance(slots, MlpSlots)
    return slots.first(step.pooled(inputs, False))
