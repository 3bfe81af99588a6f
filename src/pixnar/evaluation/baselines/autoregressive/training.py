"""Training of the autoregressive baselines: batches of pairs, checks on dev, checkpoints, a learning curve (torch)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from pixnar.base.errors import MissingExtraError, PixnarError
from pixnar.base.progress import Progress
from pixnar.base.storage import atomic_write
from pixnar.evaluation.baselines.autoregressive.backbone import Seq2Seq, padded
from pixnar.evaluation.baselines.autoregressive.pairs import Pair, PairSource
from pixnar.train.budgeted import BudgetedRun
from pixnar.train.optimizers import schedule

CURVE = "curve"
"""The learning curve's files in the folder of a baseline, without their endings."""

Judge = Callable[[Seq2Seq], float]
"""MRR@10 of a model on a sample of dev queries."""

_LENGTH = 1.0  # gradients are cut to
_PARTS = 4  # of a step, by the length of targets
_SHOWN = 0.95  # of the running mean of the loss is the past


@dataclass(frozen=True, kw_only=True)
class Learning:
    """The settings of a run; the first of `minutes` and `pairs` that is reached ends it, 0 is no limit."""

    minutes: float = 0.0  # for training, without the checks on dev
    pairs: int = 0
    batch: int = 64
    learning_rate: float = 1e-4
    encoder_learning_rate: float = 2e-5
    smoothing: float = 0.1
    warmup: int = 100  # steps, but at most a tenth of the run
    checks: int = 4  # on dev; none before the first step, when a decoder can say nothing
    dev_queries: int = 100
    seed: int = 0

    def check(self) -> None:
        """Raise where a setting is not possible."""
        if not (self.minutes > 0 or self.pairs > 0):
            raise PixnarError("training would never end: give minutes or pairs")
        for name, least in (("batch", 1), ("checks", 1), ("seed", 0), ("minutes", 0), ("pairs", 0), ("warmup", 0)):
            if not least <= getattr(self, name) < math.inf:
                raise PixnarError(f"{name} {getattr(self, name)} is not possible: give {least} or more")
        for name in ("learning_rate", "encoder_learning_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise PixnarError(f"{name} {getattr(self, name)} is not possible: give a number above 0")

    @property
    def steps(self) -> int:
        """The steps that the pairs make; 0 is no limit."""
        return math.ceil(self.pairs / self.batch)


@dataclass(frozen=True)
class Learned:
    """How a run went: what the weights that were kept have seen, and dev MRR@10 on the sample of the checks."""

    pairs: int
    minutes: float
    best_pairs: int
    best: float | None  # None: no dev queries
    curve: list[dict[str, float | None]]


def learn(
    model: Seq2Seq,
    source: PairSource,
    judge: Judge | None,
    learning: Learning,
    *,
    folder: Path,
    of: Any = None,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Learned:
    """Train `model` in place and leave the best weights in it, the last ones without a judge.

    With pairs alone, the same seed gives the same weights. Checkpoints go to `folder`; a run that finds some there
    resumes, if `of` (what it learns from, as JSON) and `learning` are the same, and begins again otherwise.
    """
    learning.check()
    return _Run(model, source, judge, learning, progress, say or (lambda _: None)).go(folder, [of, asdict(learning)])


class _StepPart(NamedTuple):
    """Pairs whose targets are of like length, and their share of all tokens of a step."""

    pairs: list[Pair]
    share: float


def _by_length(pairs: list[Pair]) -> list[_StepPart]:
    """The pairs of a step in up to four parts, of which little is padded."""
    ordered = sorted(pairs, key=lambda pair: len(pair.target))
    total, size = sum(len(pair.target) for pair in pairs), math.ceil(len(pairs) / _PARTS)
    parts = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    return [_StepPart(part, sum(len(pair.target) for pair in part) / total) for part in parts]


class _Run(BudgetedRun):
    words = "{:,} pairs"

    def __init__(
        self,
        model: Seq2Seq,
        source: PairSource,
        judge: Judge | None,
        learning: Learning,
        progress: Progress | None,
        say: Callable[[str], None],
    ) -> None:
        self.model, self.source, self.judge, self.learning = model, source, judge, learning
        body: Any = model.encoder.body
        body.get_input_embeddings().weight.requires_grad_(False)  # dense gradients of all words in every step
        optimizer = torch.optim.AdamW(_groups(model, learning), weight_decay=0.01, fused=True)
        super().__init__(model, optimizer, minutes=learning.minutes, steps=learning.steps, checks=learning.checks)
        self.progress, self.say, self.unit = progress, say, learning.batch
        self.state |= {"loss": math.nan, "curve": []}

    @property
    def judged(self) -> bool:
        return self.judge is not None

    def go(self, folder: Path, of: Any) -> Learned:
        """From the start or the last checkpoint to the end."""
        self.train(folder, of, check_start=False)
        self.model.eval()
        curve = self.state["curve"]
        best_step = self.state["best_step"] if self.judged else self.state["done"]
        best = max(row["dev"] for row in curve) if self.judged else None
        minutes = round(self.state["spent"] / 60, 2)
        return Learned(curve[-1]["pairs"], minutes, best_step * self.learning.batch, best, curve)

    def step(self, done: int, part: float) -> float:
        learning, model = self.learning, self.model
        model.train()
        torch.manual_seed((learning.seed * 1_000_003 + done) % 2**63)  # dropout: the same in every run
        pairs = [self.source.pair(done * learning.batch + i) for i in range(learning.batch)]
        share = schedule(done, part, learning.steps, learning.warmup, "linear")
        for group in self.optimizer.param_groups:
            group["lr"] = group["start"] * share
        self.optimizer.zero_grad(set_to_none=True)
        value = sum(self._backward(part) for part in _by_length(pairs))
        if not math.isfinite(value):
            raise PixnarError(f"the loss became {value} at step {done}: lower the learning rate")
        nn.utils.clip_grad_norm_(model.parameters(), _LENGTH)
        self.optimizer.step()
        before = self.state["loss"]
        self.state["loss"] = value if math.isnan(before) else _SHOWN * before + (1 - _SHOWN) * value
        return float(self.state["loss"])

    def _backward(self, part: _StepPart) -> float:
        """Add the gradients of some of a step's pairs; their share of the step's loss."""
        views = [pair.view for pair in part.pairs] if len(self.model.views) else []
        source = self.model.source([pair.text for pair in part.pairs], views)
        targets = padded([pair.target for pair in part.pairs])
        loss = self.model.loss(source, targets, self.learning.smoothing) * part.share
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    def check(self) -> None:
        """Measure on dev, note a point of the curve, and save; the best weights so far are marked."""
        step, curve = self.state["done"], self.state["curve"]
        pairs, loss = step * self.learning.batch, self.state["loss"]
        if curve and curve[-1]["pairs"] == pairs:
            return
        value = self.judge(self.model) if self.judge else None
        better = value is not None and value > max((row["dev"] for row in curve), default=-1.0)
        if better:
            self.state["best_step"] = step
        curve.append({"pairs": pairs, "minutes": self.state["spent"] / 60, "loss": loss, "dev": value})
        self.save(best=better)
        if value is not None:
            self.say(f"training: {pairs:,} pairs, dev MRR@10 {value:.4f} on a sample")


def _groups(model: Seq2Seq, learning: Learning) -> list[dict[str, Any]]:
    """The parameters of the encoder and of the decoder, each with its learning rate."""
    sides: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            sides[name.startswith("encoder.")].append(parameter)
    rates = (learning.encoder_learning_rate, learning.learning_rate)
    return [{"params": sides[side], "lr": 0.0, "start": rate} for side, rate in zip((True, False), rates, strict=True)]


def write_curve(folder: Path, learned: Learned) -> None:
    """Write the learning curve as JSON and as a picture."""
    with atomic_write(folder / f"{CURVE}.json") as file:
        file.write(json.dumps(learned.curve, indent=1).encode())
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("a plot", "plot") from error
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    name, label = ("dev", "dev MRR@10 (sample)") if learned.best is not None else ("loss", "loss")
    rows = [row for row in learned.curve if row[name] is not None]
    axes.plot([row["pairs"] or 0 for row in rows], [row[name] or 0 for row in rows], marker="o")
    axes.set_xlabel("training pairs")
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    with atomic_write(folder / f"{CURVE}.png") as file:
        figure.savefig(file, dpi=150, format="png")
