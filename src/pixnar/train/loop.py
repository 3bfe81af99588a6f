"""The training loop: two stages, a budget, dev checks with early stopping, checkpoints that resume exactly."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pixnar.base.errors import PixnarError
from pixnar.base.progress import Progress
from pixnar.model.losses import Sampler, Weights
from pixnar.model.nar import MlpSlots, Nar
from pixnar.model.sharded import write_whole
from pixnar.recipe import Train
from pixnar.scoring import Priors, ScoreRule
from pixnar.train import checkpoint
from pixnar.train.checkpoint import flatten, restore
from pixnar.train.data import TrainingData
from pixnar.train.log import TrainingLog
from pixnar.train.optimizers import make_optimizers, schedule
from pixnar.train.ranking import RankingOptions, RankingStep
from pixnar.train.step import Objective, Step

_CHECKS = 10  # on dev in a stage
_SLOT_SAMPLE = 4  # of the tokens of a sampled softmax, those that the slots beside a ranking look at: one in so many
_LIVE_ROWS = 1 / 3  # while the encoder is fine-tuned, the phrase rows learn at this share of their rate
_CENTERED_ON = 4096  # inputs whose mean vector is taken off every x_t
_CENTERED = 32  # inputs on which log Z is measured before the first step
_SAVE_SECONDS = 600.0  # between checkpoints, at most
_DEV_ROWS = ".dev-rows"  # all rows of a head in shards, while dev is asked
_FULL_SUM_FLOPS = {"cpu": 6e10, "cuda": 2e13}  # what a device does a second, for choosing between full and sampled


@dataclass(frozen=True)
class Trained:
    """How a run went."""

    steps: int
    best_step: int
    best: float  # dev MRR@10 of the weights that were kept; nan without dev queries
    softmax: str
    stopped_early: bool


@dataclass
class _TrainingStage:
    """Frozen encoder or fine-tuning: its steps in the plan of the whole run."""

    live: bool
    share: float  # of the run
    minutes: float
    steps: int  # at most; 0 = no limit


def train(
    model: Nar,
    data: TrainingData,
    options: Train,
    rule: ScoreRule,
    priors: Priors,
    *,
    folder: Path,
    evaluate: Callable[[Nar], float] | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Train `model` in place and leave the best weights in it; continues what it finds in `folder`.

    All processes of the head's group call this with the same arguments; the first one asks dev and reports progress.
    """
    if not (options.minutes or options.steps or options.epochs):
        raise PixnarError("train.minutes, train.steps and train.epochs are all 0, training would never end: set one")
    return _TrainingRun(model, data, options, rule, priors, folder).go(evaluate, progress)


class _TrainingRun:
    def __init__(
        self,
        model: Nar,
        data: TrainingData,
        options: Train,
        rule: ScoreRule,
        priors: Priors,
        folder: Path,
    ) -> None:
        self.model, self.options, self.folder = model, options, folder
        self.group = model.head.group
        self.device = self.group.device(pick_device(options.device))
        model.to(self.device)
        self.composed = rule.score == "composed"
        self.data = data
        self.pairs = data.pairs(per_document=options.per_document, self_share=options.self_share, seed=options.seed)
        self.step_of: Step | RankingStep
        if self.composed:
            self.softmax = "ranking"
            self.step_of = RankingStep(model, data, self.pairs, _ranking_options(options), options.seed)
        else:
            self.softmax = choose_softmax(model, data, options, self.device)
            self.step_of = self._token_step(rule, priors)
        self.optimizers = make_optimizers(model, self.step_of.ranking_scale, options, self.composed)
        self.group.copy_first([*model.slots.parameters(), *model.encoder.parameters()])
        self.state: dict[str, Any] = {
            "stage": 0,
            "done": [0, 0],
            "spent": [0.0, 0.0],  # seconds of training, without the checks on dev
            "checked": [0, 0],
            "best": None,
            "worse": 0,
        }
        self.log: TrainingLog | None
        self._kept, self._saved = -1, time.monotonic()

    def _token_step(self, rule: ScoreRule, priors: Priors) -> Step:
        """The paper's losses over tokens, and a ranking by token probabilities."""
        options, data = self.options, self.data
        rows = options.optimizer in ("auto", "rows")
        self.model.head.sparse = self.softmax == "sampled" and rows
        sampler = None
        if self.softmax == "sampled":
            counts = data.token_counts()
            sampler = Sampler(counts, min(options.sample, len(counts)), options.seed)
        weights = Weights(options.l1, options.l2, options.l3)
        objective = Objective(weights, options.ranking, options.negatives)
        return Step(self.model, data, self.pairs, objective, rule, priors, sampler)

    @property
    def stages(self) -> list[_TrainingStage]:
        share = self.options.fine_tune if self.model.design == "mlp" else 1.0
        plans = []
        frozen = round(self.options.steps * (1 - share))
        for live, part, steps in ((False, 1 - share, frozen), (True, share, self.options.steps - frozen)):
            if self.options.steps and not steps:
                part = 0.0  # its share is less than half a step
            plans.append(_TrainingStage(live, part, self.options.minutes * part, steps))
        return plans

    def go(self, evaluate: Callable[[Nar], float] | None, progress: Progress | None) -> Trained:
        self._resume()
        with self.log or contextlib.nullcontext():
            return self._all(evaluate, progress if self.group.first else None)

    def _all(self, evaluate: Callable[[Nar], float] | None, progress: Progress | None) -> Trained:
        stopped = False
        if evaluate and self.state["best"] is None:
            self._judge(evaluate)
        for number, stage in enumerate(self.stages):
            if number < self.state["stage"] or not stage.share:
                continue
            self.state["stage"] = number
            stopped = self._stage(stage, number, evaluate, progress)
            self.state["worse"] = 0
            if stopped:
                self._take_best()
        if self.state["best"] is not None:
            self._take_best()
        self.model.head.fold()
        best = self.state["best"] or {"step": self._step(), "value": float("nan")}
        return Trained(self._step(), best["step"], best["value"], self.softmax, stopped)

    def _stage(
        self, stage: _TrainingStage, number: int, evaluate: Callable[[Nar], float] | None, progress: Progress | None
    ) -> bool:
        """Run one stage to its end; whether it was ended early because dev no longer got better."""
        self.model.train()
        self._thaw(stage.live)
        limit, every = self._limit(stage), self.options.evaluate_every
        while True:
            done = self.state["done"][number]
            part = self._part(stage, number, limit)
            due = time.monotonic() - self._saved > _SAVE_SECONDS
            if self.group.size > 1:  # by the clock of the first
                part, due, self.state["spent"] = self.group.tell([part, due, self.state["spent"]])
            checks = int(part * _CHECKS)
            if part >= 1 or (done % every == 0 if every else checks > self.state["checked"][number]):
                self.state["checked"][number] = checks
                if done:
                    self._keep(evaluate)
                    self.model.train()
            elif due:
                self._save()
            if self.options.patience and self.state["worse"] >= self.options.patience:
                return True  # maybe of a run that was killed right then
            if part >= 1:
                return False
            started = time.monotonic()
            shown = self._one(stage, done, limit, part)
            self.state["done"][number] = done + 1
            self.state["spent"][number] += time.monotonic() - started
            if self.log:
                self.log.write(self._step(), **shown)
            if progress:
                words = f"training ({'all layers' if stage.live else 'frozen encoder'}): {_brief(shown)}"
                now = self._part(stage, number, limit)
                progress(words, done + 1, limit or max(done + 1, int((done + 1) / max(now, 1e-9))))

    def _thaw(self, live: bool) -> None:
        """Let the encoder learn, or not; its word embeddings only where it learns from the first step on."""
        self.model.encoder.requires_grad_(live)
        if live and self.options.fine_tune < 1 and self.composed:
            body: Any = self.model.encoder.body
            body.get_input_embeddings().requires_grad_(False)

    def _keep(self, evaluate: Callable[[Nar], float] | None) -> None:
        """Judge and save the weights of this step, unless that is done."""
        if self._kept == self._step():
            return
        if evaluate:
            self._judge(evaluate)
        else:
            self._save()
        self._kept = self._step()

    def _limit(self, stage: _TrainingStage) -> int:
        """Steps of a stage, by the first limit that counts steps; 0 where only minutes limit it."""
        limits = [stage.steps] if stage.steps else []
        if self.options.epochs:
            batches = self.options.epochs * self.pairs.steps_per_epoch(self.options.batch)
            limits.append(max(1, int(stage.share * batches) // self.options.accumulate))
        return min(limits, default=0)

    def _part(self, stage: _TrainingStage, number: int, limit: int) -> float:
        """How much of a stage is done: by its steps, or by its minutes if they run out first."""
        part = self.state["done"][number] / limit if limit else 0.0
        if stage.minutes:
            part = max(part, self.state["spent"][number] / (60 * stage.minutes))
        return part

    def _one(self, stage: _TrainingStage, done: int, limit: int, part: float) -> dict[str, float]:
        options = self.options
        seed = options.seed * 1_000_003 + self._step() + self.group.rank * 7_368_787
        torch.manual_seed(seed % 2**63)  # dropout: the same after a resume, another in every process
        started = time.monotonic()
        shown: dict[str, float] = {}
        for turn in range(options.accumulate):
            with _autocast(self.device, options.precision):
                loss, parts = self.step_of(self._step() * options.accumulate + turn, options.batch, live=stage.live)
            if not torch.isfinite(loss):
                raise PixnarError(
                    f"the loss became {float(loss.detach())} at step {self._step()}: lower the learning rates"
                )
            (loss / options.accumulate).backward()  # type: ignore[no-untyped-call]
            shown = {name: shown.get(name, 0.0) + value / options.accumulate for name, value in parts.items()}
        factor = schedule(done, part, limit, options.warmup, options.schedule)
        body = [*self.model.slots.parameters(), *self.model.encoder.parameters()]
        self.group.add_up([parameter.grad for parameter in body if parameter.grad is not None])
        _clip(self.model)
        for name, optimizer in self.optimizers.items():
            slower = _LIVE_ROWS if name != "body" and stage.live and self.composed and self.stages[0].share else 1.0
            for parameters in optimizer.param_groups:
                parameters["lr"] = parameters["start"] * factor * slower
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        seconds = time.monotonic() - started
        examples = options.batch * options.accumulate
        return shown | {"rate": factor, "examples_per_second": examples / max(seconds, 1e-9)}

    def _judge(self, evaluate: Callable[[Nar], float]) -> None:
        """Measure on dev, keep what is best so far."""
        self.model.eval()
        value = self._measured(evaluate)
        best = self.state["best"]
        if self.log:
            self.log.write(self._step(), dev_mrr10=value)
        if best is None or value > best["value"]:
            self.state["best"], self.state["worse"] = {"step": self._step(), "value": value}, 0
            self._save()
            if self.group.first:
                checkpoint.mark_best(self.folder, self._step())
        else:
            self.state["worse"] += 1
            self._save()

    def _measured(self, evaluate: Callable[[Nar], float]) -> float:
        """What the first process measures; of a head in shards it maps the rows that all have written to a file."""
        if self.group.size == 1:
            return evaluate(self.model.with_head(self.model.head.written()))
        path = self.folder / _DEV_ROWS
        if self.group.first:
            self.folder.mkdir(parents=True, exist_ok=True)
        rows = write_whole(self.model.head, path)
        value = 0.0
        if self.group.first:
            value = evaluate(self.model.with_head(rows()))
            path.unlink()
        return self.group.tell(value)

    def _step(self) -> int:
        return int(sum(self.state["done"]))

    def _tensors(self) -> dict[str, Tensor]:
        """What has been trained: everything but an encoder that was frozen all along."""
        kept = {f"model.{name}": value for name, value in self.model.state_dict().items() if self._trained(name)}
        kept["ranking_scale"] = self.step_of.ranking_scale.detach()
        if isinstance(self.step_of, RankingStep) and self.step_of.mined is not None:
            inputs, near = self.step_of.mined
            kept |= {"mined.inputs": torch.from_numpy(inputs), "mined.near": torch.from_numpy(near)}
        return kept

    def _trained(self, name: str) -> bool:
        return not name.startswith("encoder.") or self.options.fine_tune > 0 or self.model.design != "mlp"

    def _save(self) -> None:
        self._saved = time.monotonic()
        tensors, state = self._tensors(), dict(self.state)
        state["optimizers"] = {}
        for name, optimizer in self.optimizers.items():
            more, rest = flatten(optimizer.state_dict())
            tensors |= {f"optimizer.{name}.{key}": value for key, value in more.items()}
            state["optimizers"][name] = rest
        checkpoint.save(self.folder, self._step(), tensors, state, rows=self._rows())

    def _rows(self) -> checkpoint.RowShard | None:
        """Which rows this process saves and loads: all, where it is alone."""
        first, head = self.model.head.first, self.model.head
        return checkpoint.RowShard(first, first + len(head.rows), self.group, _of_rows) if self.group.size > 1 else None

    def _found(self, find: Callable[[Path], Path | None]) -> Path | None:
        """The checkpoint that the first process finds, and has checked."""
        path = find(self.folder) if self.group.first else None
        found = self.group.tell(None if path is None else str(path))
        return None if found is None else Path(found)

    def _resume(self) -> None:
        found = self._found(checkpoint.latest)
        if found is None:
            self._center()
            self.log = TrainingLog(self.folder, self.options.tensorboard) if self.group.first else None
            return
        tensors, state = checkpoint.load(found, verify=self.group.size == 1, rows=self._rows())
        self._put(tensors)
        if isinstance(self.step_of, RankingStep) and "mined.near" in tensors:
            self.step_of.mined = tensors["mined.inputs"].numpy(), tensors["mined.near"].numpy()
        self._kept = sum(state["done"])
        for name, optimizer in self.optimizers.items():
            start = f"optimizer.{name}."
            own = {key[len(start) :]: value for key, value in tensors.items() if key.startswith(start)}
            optimizer.load_state_dict(restore(own, state["optimizers"][name]))
        self.state = {key: value for key, value in state.items() if key != "optimizers"}
        self.log = None
        if not self.group.first:
            return
        self.log = TrainingLog(self.folder, self.options.tensorboard, resume=self._step())
        if self.state["best"] and self.state["best"]["step"] == self._step():
            checkpoint.mark_best(self.folder, self._step())  # a kill may have come between saving and marking

    @torch.no_grad()
    def _center(self) -> None:
        """Take the mean log Z off the bias, so that l3 does not begin by outweighing the rest; P stays as it is."""
        self.model.eval()
        live = not self.stages[0].share
        if self.composed and isinstance(self.step_of, RankingStep) and isinstance(self.model.slots, MlpSlots):
            kept = self.data.vectors is not None  # the encoder is still the one they were made by
            inputs = self.pairs.batch(0, _CENTERED_ON if kept else _CENTERED).inputs
            self.model.slots.center_on(self.step_of.pooled(inputs, not kept))
        bias = self.model.head.bias
        if bias is None or not self.options.l3:
            return
        x = self.step_of.vectors(self.pairs.batch(0, _CENTERED).inputs, live=live)
        bias.sub_(self.model.head.written().log_z(x[:, 1:].flatten(0, 1)).mean())

    def _put(self, tensors: dict[str, Tensor]) -> None:
        own = {name[6:]: value for name, value in tensors.items() if name.startswith("model.")}
        self.model.load_state_dict(own, strict=False)
        with torch.no_grad():
            self.step_of.ranking_scale.copy_(tensors["ranking_scale"])

    def _take_best(self) -> None:
        found = self._found(checkpoint.best)
        if found is not None:
            self._put(checkpoint.load(found, verify=self.group.size == 1, rows=self._rows())[0])


def _of_rows(name: str) -> bool:
    """Whether a tensor of a checkpoint has one row per token."""
    return name.startswith(("model.head.", "optimizer.head.")) and not name.startswith("model.head.pieces.")


def pick_device(wanted: str) -> torch.device:
    """A device by name; `auto` takes a GPU if there is one."""
    if wanted != "auto":
        return torch.device(wanted)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def choose_softmax(model: Nar, data: TrainingData, options: Train, device: torch.device) -> str:
    """`full`, or `sampled` where the full sum would not see every pair once within the budget."""
    if options.softmax != "auto":
        return options.softmax
    if not options.minutes:
        return "full"
    flops = 6 * (model.slots.slots + 1) * model.head.total * model.head.width
    devices = model.head.group.size if device.type == "cuda" else 1  # processes on processors share their cores
    examples = devices * _FULL_SUM_FLOPS.get(device.type, 1e11) / flops * options.minutes * 60
    pairs = min(len(data.docids), (options.per_document or len(data.docids)) * len(data.doc_ids))
    return "full" if examples >= pairs else "sampled"


def _ranking_options(options: Train) -> RankingOptions:
    return RankingOptions(
        negatives=options.negatives,
        docids=options.docids,
        all_documents=options.rank_against == "all",
        mine_every=options.mine_every,
        correct_sampling=options.correct_sampling,
        slot_examples=min(options.slot_examples, options.batch),
        sample=max(1, options.sample // _SLOT_SAMPLE),
        weights=Weights(options.l1, 0.0, options.l3),  # l2 would pull x_0 away from what ranks: docs/LOG.md
        teacher=options.teacher,
        taught_by=options.taught_by,
    )


def _clip(model: Nar) -> None:
    nn.utils.clip_grad_norm_([*model.slots.parameters(), *model.encoder.parameters()], 1.0)


def _autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager[Any]:
    """Half precision where the device likes it; never on a CPU unless asked for."""
    kinds = {"bf16": torch.bfloat16}
    if precision == "auto":
        precision = "bf16" if device.type == "cuda" else "fp32"
    return contextlib.nullcontext() if precision == "fp32" else torch.autocast(device.type, kinds[precision])


def _brief(shown: dict[str, float]) -> str:
    names = {"l1": "l1", "l2": "l2", "l3": "l3", "ranking": "ranking", "log_z": "|log Z|", "recall": "shortlist recall"}
    parts = [
        f"{word} {shown[name]:.2f}" for name, word in names.items() if name in shown and shown[name] == shown[name]
    ]
    return " ".join([*parts, f"{shown['examples_per_second']:.0f} examples/s"])
