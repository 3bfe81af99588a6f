"""Optimizers of a training run and the schedule of their learning rates."""

from __future__ import annotations

import torch
from torch import nn

from pixnar.model.nar import MlpSlots, Nar
from pixnar.model.optim import LazyAdam, RowAdam
from pixnar.model.process_group import ProcessGroup
from pixnar.recipe import Train

_OTHERS_RATE = 4  # how much faster than other layers those of x_1 … x_s learn, which see a few inputs of a batch
_PIECES_RATE = 0.3  # learning rate of word pieces as a share of the phrase rows': they are in nearly every batch
_SCALE_RATE = 20  # how much faster than the slots' layers the scale of their scores learns
_WARMUP_SHARE = 0.1  # of a stage: the warm-up takes no more
_LAZY_BYTES = 4e9  # of rows: beyond, their optimizer keeps one number a row instead of two a number


def make_optimizers(
    model: Nar, ranking_scale: nn.Parameter, options: Train, composed: bool
) -> dict[str, torch.optim.Optimizer]:
    """An optimizer each for the slots and encoder (body), the phrase rows (head), and rows of word pieces."""
    scales = [model.slots.log_scale, ranking_scale] if composed else []
    small = [*model.slots.parameters(), ranking_scale]
    small = [parameter for parameter in small if not any(parameter is other for other in scales)]
    decay, betas = (0.0, (0.9, 0.99)) if composed else (0.01, (0.9, 0.999))
    encoder = list(model.encoder.parameters())
    groups = [
        {"params": small, "lr": options.learning_rate, "start": options.learning_rate, "weight_decay": decay},
        {"params": encoder, "lr": options.encoder_learning_rate, "start": options.encoder_learning_rate},
    ]
    if composed:
        rate = _SCALE_RATE * options.learning_rate
        groups.append({"params": scales, "lr": rate, "start": rate})
    if composed and isinstance(model.slots, MlpSlots):
        others = model.slots.of_others()
        groups[0]["params"] = [one for one in small if not any(one is other for other in others)]
        rate = _OTHERS_RATE * options.learning_rate
        groups.append({"params": others, "lr": rate, "start": rate})
    rows = [parameter for parameter in (model.head.rows, model.head.bias) if parameter is not None]
    rate = options.head_learning_rate
    kind = options.optimizer
    if composed and kind == "auto":
        kind = "adam" if model.head.rows.nbytes <= _LAZY_BYTES else "rows"
    found: dict[str, torch.optim.Optimizer] = {
        "body": torch.optim.AdamW(groups, weight_decay=0.0, betas=betas),
        "head": _row_optimizer(rows, rate, kind, composed, model.head.group),
    }
    if model.head.pieces is not None:
        shared = [model.head.pieces.rows]
        found["pieces"] = _row_optimizer(shared, _PIECES_RATE * rate, kind, composed, model.head.group)
    return found


def _row_optimizer(
    rows: list[nn.Parameter], rate: float, kind: str, composed: bool, group: ProcessGroup
) -> torch.optim.Optimizer:
    groups = [{"params": rows, "lr": rate, "start": rate}]
    if kind != "adam":
        return RowAdam(groups, processes=group)
    return LazyAdam(groups) if composed else torch.optim.Adam(groups)


def schedule(done: int, part: float, limit: int, warmup: int, kind: str) -> float:
    """What the learning rates are multiplied with: up over `warmup` steps, then down to zero, or constant.

    `part` of the stage is done, which is `done` out of `limit` steps where steps limit it. The warm-up takes at most a
    tenth of the stage.

    >>> [round(schedule(step, step / 20, 20, 2, "linear"), 2) for step in (0, 1, 2, 11, 19)]
    [0.5, 1.0, 1.0, 0.5, 0.06]
    """
    share = min(_WARMUP_SHARE, warmup / limit) if limit else _WARMUP_SHARE
    rise = min(1.0, (done + 1) / max(share * limit, 1)) if limit else max((done + 1) / max(warmup, 1), part / share)
    fall = (1 - part) / (1 - share) if kind == "linear" else 1.0
    return min(1.0, rise) * min(1.0, fall)
