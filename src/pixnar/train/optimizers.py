"""Optimizers: Adam for tables of millions of rows that touches only the rows of a batch, and the schedule of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor, nn

from pixnar.model.logsumexp import wide
from pixnar.model.nar import MlpSlots, Nar
from pixnar.model.process_group import SINGLE, ProcessGroup
from pixnar.recipe import Train

_FLOOR = 0.01  # of the typical mean square of a row: rows far below it are not scaled up to steps of full length
_MOST_STEPS = 32_767  # where the count of a row's steps stops; its averages have long settled by then


class _Aged(NamedTuple):
    """Rows that are about to move: their gradients, and their second moments, which have seen these gradients."""

    rows: Tensor
    ids: Tensor | None  # None: all rows
    grads: Tensor
    group: dict[str, Any]
    real: Tensor  # by row, 1 where it has a gradient
    square: Tensor  # by row, corrected for the number of its steps
    steps: Tensor  # by row, how many it has taken, these included


class RowAdam(torch.optim.Optimizer):
    """Adam whose second moment is the mean square over a row: one float per row in place of d.

    Each row counts its own steps, so a rare row's first step is as long as a frequent one's. A row whose gradient is
    zero, or that a sparse gradient leaves out, is neither moved nor aged. `beta1` > 0 adds momentum, in the type of
    the rows. Parameters of one dimension, such as a bias, are tables of rows of width one.

    In `step` a second moment counts as at least a hundredth of the mean over the rows that move. Rows whose gradients
    vanish, as those of tokens that are never a target do under a softmax, then take short steps; other rows move as
    without it. `processes` hold the shards of a sharded head: the mean is over the rows of all of them.

    Memory for 5 M × 768 in float32: rows 15.4 GB; state 20 MB + 10 MB for the step counts; momentum, if any, 15.4 GB.
    A dense gradient (full softmax) is another 15.4 GB; a sparse one is the batch's own rows only, some 3 KB each.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        *,
        beta1: float = 0.0,
        beta2: float = 0.999,
        eps: float = 1e-8,
        processes: ProcessGroup = SINGLE,
    ) -> None:
        if lr < 0 or eps < 0 or not (0 <= beta1 < 1 and 0 <= beta2 < 1):
            raise ValueError(f"lr, eps >= 0 and betas in [0, 1) are needed, not {lr}, {eps}, {beta1}, {beta2}")
        super().__init__(params, {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps})
        self.processes = processes

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Move every parameter that has a gradient, dense or sparse; all processes of a group call this."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        pairs = [(rows, group) for group in self.param_groups for rows in group["params"]]
        aged = [None if rows.grad is None else self._age(rows, *_gradient(rows.grad), group) for rows, group in pairs]
        floors = _floors(aged, self.processes, pairs[0][0].device)
        for one, floor in zip(aged, floors, strict=True):
            if one is not None:
                self._move(one, floor)
        return loss

    @torch.no_grad()
    def step_rows(self, rows: Tensor, ids: Tensor, grads: Tensor) -> None:
        """Move rows[ids] by their gradients [len(ids), …], given aside; those of a repeated id are added up.

        Every row takes a step of full length, however small its gradient is beside those of the others.
        """
        group = next(group for group in self.param_groups if any(known is rows for known in group["params"]))
        different, place = torch.unique(ids, return_inverse=True)
        merged = grads.new_zeros((len(different), *grads.shape[1:])).index_add_(0, place, grads)
        self._move(self._age(rows, different, merged, group), torch.zeros((), device=rows.device))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load; unlike its base, leaves each part of the state in the type it was saved in."""
        super().load_state_dict(state_dict)
        saved = [name for group in state_dict["param_groups"] for name in group["params"]]
        known = [rows for group in self.param_groups for rows in group["params"]]
        for name, rows in zip(saved, known, strict=True):
            for key, value in state_dict["state"].get(name, {}).items():
                self.state[rows][key] = value.detach().clone().to(rows.device)

    def _age(self, rows: Tensor, ids: Tensor | None, grads: Tensor, group: dict[str, Any]) -> _Aged:
        """Let the second moments and step counts of the rows with a gradient see it."""
        state = self._state_of(rows, group)
        square, steps = (state[name] if ids is None else state[name][ids] for name in ("square", "steps"))
        fresh = _mean_squares(grads)
        real = (fresh > 0).to(square.dtype)
        square.lerp_(fresh, (1 - group["beta2"]) * real)
        steps += ((steps < _MOST_STEPS) & (real > 0)).to(steps.dtype)
        if ids is not None:
            state["square"][ids], state["steps"][ids] = square, steps
        taken = steps.clamp(min=1).to(square.dtype)
        return _Aged(rows, ids, grads, group, real, square / (1 - group["beta2"] ** taken), taken)

    def _move(self, aged: _Aged, floor: Tensor) -> None:
        size = torch.maximum(aged.square, floor).sqrt_().add_(aged.group["eps"])
        size.clamp_(min=torch.finfo(size.dtype).tiny)  # of a row that has had no gradient yet
        scale = aged.real * aged.group["lr"] / size / (1 - aged.group["beta1"] ** aged.steps)
        if aged.ids is None:
            self._move_all(aged, scale)
        else:
            self._move_some(aged, aged.ids, scale)

    def _move_all(self, aged: _Aged, scale: Tensor) -> None:
        """In place throughout: nothing of the size of the rows is made."""
        moves = aged.grads
        if aged.group["beta1"]:
            moves = self.state[aged.rows]["momentum"]
            moves.lerp_(aged.grads.to(moves.dtype), _beside((1 - aged.group["beta1"]) * aged.real, moves))
        aged.rows.addcmul_(moves, _beside(-scale, aged.rows))

    def _move_some(self, aged: _Aged, ids: Tensor, scale: Tensor) -> None:
        rows, moves = aged.rows, aged.grads.to(aged.rows.dtype)
        if aged.group["beta1"]:
            momentum = self.state[rows]["momentum"]
            moves = momentum[ids].lerp_(moves, _beside((1 - aged.group["beta1"]) * aged.real, rows))
            momentum[ids] = moves
        rows.index_add_(0, ids, moves * _beside(-scale, rows))

    def _state_of(self, rows: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[rows]
        if not state:
            state["square"] = torch.zeros(len(rows), dtype=wide(rows.dtype), device=rows.device)
            state["steps"] = torch.zeros(len(rows), dtype=torch.int16, device=rows.device)
            if group["beta1"]:
                state["momentum"] = torch.zeros_like(rows, memory_format=torch.preserve_format)
        return state


class LazyAdam(torch.optim.Optimizer):
    """Adam with both moments of every number, for sparse gradients: rows that a batch does not touch stay as they are.

    Better than `RowAdam` by the step, at three times the rows' memory.
    """

    def __init__(
        self, params: Any, lr: float = 1e-3, *, beta1: float = 0.9, beta2: float = 0.99, eps: float = 1e-8
    ) -> None:
        super().__init__(params, {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "steps": 0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Move the rows that have a gradient."""
        for group in self.param_groups:
            group["steps"] += 1
            for rows in group["params"]:
                if rows.grad is not None:
                    self._move(rows, rows.grad, group)

    def _move(self, rows: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[rows]
        if not state:
            state["mean"], state["square"] = torch.zeros_like(rows), torch.zeros_like(rows)
        steps = group["steps"]
        if grad.is_sparse:
            merged = grad.coalesce()
            ids, grads = merged.indices()[0], merged.values()
        else:
            ids, grads = torch.arange(len(rows), device=rows.device), grad
        mean = state["mean"][ids].lerp_(grads, 1 - group["beta1"])
        square = state["square"][ids].mul_(group["beta2"]).addcmul_(grads, grads, value=1 - group["beta2"])
        state["mean"][ids], state["square"][ids] = mean, square
        size = square.div_(1 - group["beta2"] ** steps).sqrt_().add_(group["eps"])
        rows.index_add_(0, ids, mean.div_(size), alpha=-group["lr"] / (1 - group["beta1"] ** steps))


def _gradient(grad: Tensor) -> tuple[Tensor | None, Tensor]:
    """The rows that a gradient is of, None for all of them, and their gradients."""
    if not grad.is_sparse:
        return None, grad
    merged = grad.coalesce()
    return merged.indices()[0], merged.values()


def _floors(aged: Sequence[_Aged | None], processes: ProcessGroup, device: torch.device) -> Tensor:
    """By parameter, what a second moment counts as at least: a part of the mean over the rows with a gradient.

    All processes of a group ask for the same parameters, even where one of them has no gradient of its own rows.
    """
    sums = torch.zeros(len(aged), 2, device=device)
    for part, one in zip(sums, aged, strict=True):
        if one is not None:
            usual = (one.real > 0) & one.square.isfinite()  # a row that has overflowed must not stop all others
            part[0], part[1] = one.square.where(usual, 0).sum(), usual.sum()
    processes.add_up([sums])
    return _FLOOR * sums[:, 0] / sums[:, 1].clamp(min=1)


def _mean_squares(grads: Tensor) -> Tensor:
    """The mean square of each row's gradient, with no copy of the gradient."""
    flat = grads.flatten(1) if grads.dim() > 1 else grads[:, None]
    norms: Tensor = torch.linalg.vector_norm(flat, dim=1, dtype=wide(grads.dtype))
    return norms.square_().div_(flat.shape[1])


def _beside(values: Tensor, rows: Tensor) -> Tensor:
    """One value per row, in the rows' type, shaped to multiply them."""
    return values.to(rows.dtype).view(-1, *[1] * (rows.dim() - 1))


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
