"""A training run with a budget of steps or minutes: checkpoints, resuming after a kill, the best weights on dev."""

from __future__ import annotations

import json
import math
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pixnar.base.progress import Progress
from pixnar.train import checkpoint
from pixnar.train.checkpoint import flatten, restore

_SAVE_SECONDS = 120.0  # between checkpoints, at most


class BudgetedRun(ABC):
    """A run over a module and its optimizer; what is derived says what a step and a check on dev are.

    `state` is what a checkpoint knows beside the weights, as JSON: numbers that are not known yet are nan. The budget
    is `minutes` of training, without the checks, or `steps`; the first that is reached ends the run, 0 is no limit.
    """

    noun = "training"
    unit = 1  # what a step counts, in the words that are said
    words = "step {:,}"

    def __init__(
        self, module: nn.Module, optimizer: torch.optim.Optimizer, *, minutes: float, steps: int, checks: int
    ) -> None:
        self.module, self.optimizer = module, optimizer
        self.minutes, self.steps, self.checks = minutes, steps, checks
        self.state: dict[str, Any] = {"done": 0, "spent": 0.0, "checks": 0, "best_step": 0}
        self.say: Callable[[str], None] = lambda _: None
        self.progress: Progress | None = None
        self.folder, self.of = Path(), None
        self.kept, self._saved = -1, 0.0  # the last step that was saved, and when

    @property
    @abstractmethod
    def judged(self) -> bool:
        """Whether there are dev queries."""

    @abstractmethod
    def step(self, done: int, part: float) -> float:
        """Train one step, when that part of the run is done; the loss to show."""

    @abstractmethod
    def check(self) -> None:
        """Measure on dev and save."""

    def train(self, folder: Path, of: Any, *, check_start: bool) -> None:
        """From the start or the last checkpoint of the same run (`of`, as JSON) to the end, with the best weights."""
        self.folder, self.of = folder, json.loads(json.dumps(of))
        self._resume()
        self._saved = time.monotonic()
        while True:
            part = self.part()
            if part >= 1 or (check_start and not self.state["done"]) or int(part * self.checks) > self.state["checks"]:
                self.state["checks"] = int(part * self.checks)
                self.check()
            elif time.monotonic() - self._saved > _SAVE_SECONDS:
                self.save()
            if part >= 1:
                break
            began = time.monotonic()
            loss = self.step(self.state["done"], part)
            self.state["done"] += 1
            self.state["spent"] += time.monotonic() - began
            self._report(loss)
        if self.judged:
            found = checkpoint.best(folder)
            assert found is not None
            self._put(checkpoint.load(found)[0])

    def part(self) -> float:
        """How much of the run is done: by its steps, or by its minutes if they run out first."""
        by_steps = self.state["done"] / self.steps if self.steps else 0.0
        return max(by_steps, self.state["spent"] / (60 * self.minutes) if self.minutes else 0.0)

    def save(self, *, best: bool = False) -> None:
        """Write a checkpoint; `best` marks it as the best so far."""
        self.kept, self._saved = self.state["done"], time.monotonic()
        optimizer, rest = flatten(self.optimizer.state_dict())
        tensors = {f"model.{name}": value for name, value in self.module.state_dict().items()}
        tensors |= {f"optimizer.{name}": value for name, value in optimizer.items()}
        known = {name: None if value != value else value for name, value in self.state.items()}
        checkpoint.save(self.folder, self.state["done"], tensors, known | {"optimizer": rest, "of": self.of})
        if best:
            checkpoint.mark_best(self.folder, self.state["done"])

    def _report(self, loss: float) -> None:
        if self.progress:
            done, part = self.state["done"], self.part()
            left = self.state["spent"] * (1 / max(part, 1e-9) - 1)
            total = self.steps or max(done, int(done / max(part, 1e-9)))
            self.progress(f"{self.noun}: loss {loss:.3f}, {max(left, 0):.0f} s left", done, total)

    def _resume(self) -> None:
        """Take up the last checkpoint of the same run; those of another are removed."""
        found = checkpoint.latest(self.folder)
        if found is None:
            return
        tensors, state = checkpoint.load(found)
        if state.pop("of") != self.of:
            self.say(f"{self.noun}: the checkpoints found are of other settings or another corpus; starting again")
            shutil.rmtree(self.folder)
            return
        optimizer = {name[10:]: value for name, value in tensors.items() if name.startswith("optimizer.")}
        self.optimizer.load_state_dict(restore(optimizer, state.pop("optimizer")))
        self._put(tensors)
        self.state = {name: math.nan if value is None else value for name, value in state.items()}
        self.kept = self.state["done"]
        if self.state["best_step"] == self.kept and self.judged:
            checkpoint.mark_best(self.folder, self.kept)  # a kill may have come between saving and marking
        self.say(f"{self.noun}: resumed at {self.words.format(self.state['done'] * self.unit)}")

    def _put(self, tensors: dict[str, Tensor]) -> None:
        self.module.load_state_dict({name[6:]: value for name, value in tensors.items() if name.startswith("model.")})
