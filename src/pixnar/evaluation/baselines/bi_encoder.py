"""Bi-encoder fine-tuning for dense retrieval, with in-batch negatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pixnar.base.errors import MissingPartError, PixnarError
from pixnar.base.progress import Progress
from pixnar.evaluation.baselines.entries import Entries, Floats, Ints
from pixnar.evaluation.measures import mrr_at
from pixnar.evaluation.queries import Queries
from pixnar.model.encoder import Encoder
from pixnar.model.features import FeatureCache
from pixnar.train.budgeted import BudgetedRun
from pixnar.train.data import TrainingInputs
from pixnar.train.loop import pick_device
from pixnar.train.optimizers import schedule
from pixnar.train.pairs import Epoch

_LENGTH = 1.0  # gradients are cut to
_PER_DOCUMENT = 20  # docids of a document that are inputs in an epoch, at most


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The settings of a run; the first of `minutes` and `steps` that is reached ends it, 0 is no limit."""

    minutes: float = 0.0  # for training, without the checks on dev
    steps: int = 0
    batch: int = 64
    learning_rate: float = 2e-5
    temperature: float = 0.05
    warmup: int = 50  # steps, but at most a tenth of the run
    checks: int = 5  # on dev, beside the one before the first step
    dev_queries: int = 500
    dev_entries: int = 20_000  # of which checks choose the best; more than these are sampled by document
    seed: int = 0
    device: str = "auto"

    def check(self) -> None:
        """Raise where a setting is not possible."""
        if not (self.minutes > 0 or self.steps > 0):
            raise PixnarError("fine-tuning would never end: give minutes or steps")
        for name, least in (("batch", 2), ("checks", 1), ("seed", 0), ("minutes", 0), ("steps", 0)):
            if getattr(self, name) < least:
                raise PixnarError(f"{name} {getattr(self, name)} is not possible: give {least} or more")
        for name in ("learning_rate", "temperature"):
            if not 0 < getattr(self, name) < math.inf:
                raise PixnarError(f"{name} {getattr(self, name)} is not possible: give a number above 0")


@dataclass(frozen=True)
class Tuned:
    """How a run went: dev MRR@10 among the entries that were checked, before it and of the weights that were kept."""

    steps: int
    best_step: int  # 0: nothing was better than the encoder as it came
    start: float
    best: float
    checked_entries: int


def fine_tune(
    encoder: Encoder,
    names: TrainingInputs,
    entries: Entries,
    texts: list[str],
    dev: Queries,
    tuning: Tuning,
    *,
    folder: Path,
    of: Any = None,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Tuned:
    """Train `encoder` in place to find `entries` with these texts, and leave the best weights in it.

    Entries are the docids of `names`, one text per document, or both. With steps alone, the same seed gives the same
    weights. Checkpoints go to `folder`; a run that finds some there resumes, if `of` (what it learns from, as JSON) and
    `tuning` are the same, and begins again otherwise.
    """
    tuning.check()
    run = _TuningRun(encoder, names, entries, texts, dev, tuning, progress, say or (lambda _: None))
    return run.go(folder, [of, asdict(tuning)])


class _TuningRun(BudgetedRun):
    noun = "fine-tuning"

    def __init__(
        self,
        encoder: Encoder,
        names: TrainingInputs,
        entries: Entries,
        texts: list[str],
        dev: Queries,
        tuning: Tuning,
        progress: Progress | None,
        say: Callable[[str], None],
    ) -> None:
        self.encoder, self.tuning = encoder, tuning
        try:
            self.device = pick_device(tuning.device)
            encoder.to(self.device)
        except (RuntimeError, AssertionError) as error:  # torch has no narrower ones for what is not there
            reason = (str(error).splitlines() or ["?"])[0]
            raise PixnarError(f"cannot use the device {tuning.device}: {reason}; give auto or cpu") from error
        self.sides = _Sides(names, entries, texts)
        self.pairs = names.pairs(per_document=_PER_DOCUMENT, self_share=0.0, seed=tuning.seed)
        if not self.sides.usable(self.pairs.epoch(0)).any():
            raise MissingPartError(
                "there is nothing to fine-tune on: no train queries, and no document with two docids; "
                "leave out minutes and steps"
            )
        self.judge = Judge(entries, texts, dev.first(tuning.dev_queries), tuning.dev_entries, tuning.seed)
        optimizer = torch.optim.AdamW(encoder.parameters(), lr=tuning.learning_rate, weight_decay=0.01)
        super().__init__(encoder, optimizer, minutes=tuning.minutes, steps=tuning.steps, checks=tuning.checks)
        self.progress, self.say = progress, say
        self.state |= {"start": math.nan, "best": math.nan}

    @property
    def judged(self) -> bool:
        return len(self.judge) > 0

    def go(self, folder: Path, of: Any) -> Tuned:
        """From the start or the last checkpoint to the end."""
        self.train(folder, of, check_start=True)
        done, best_step = self.state["done"], self.state["best_step"]
        if self.judged and not best_step:
            self.say(f"fine-tuning: {done} steps brought nothing better on dev; the encoder stays as it came")
        self.encoder.cpu().eval()
        kept = best_step if self.judged else done
        return Tuned(done, kept, self.state["start"], self.state["best"], len(self.judge.rows))

    def step(self, done: int, part: float) -> float:
        tuning, encoder = self.tuning, self.encoder
        encoder.train()
        torch.manual_seed((tuning.seed * 1_000_003 + done) % 2**63)  # dropout: the same in every run
        inputs, targets, others = self.sides.batch(self.pairs.batch(done, tuning.batch))
        for group in self.optimizer.param_groups:
            group["lr"] = tuning.learning_rate * schedule(done, part, tuning.steps, tuning.warmup, "linear")
        if len(inputs) < 2:
            return 0.0
        left, right = encoder.vectors([*inputs, *targets]).chunk(2)
        near = (left @ right.t() / tuning.temperature).masked_fill(torch.from_numpy(others).to(self.device), -torch.inf)
        loss = nn.functional.cross_entropy(near, torch.arange(len(inputs), device=self.device))
        if not torch.isfinite(loss):
            raise PixnarError(f"the loss became {float(loss.detach())} at step {done}: lower the learning rate")
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(encoder.parameters(), _LENGTH)
        self.optimizer.step()
        return float(loss.detach())

    def check(self) -> None:
        """Measure on dev and save; the best weights so far are marked."""
        step = self.state["done"]
        if step == self.kept:
            return
        better = False
        if self.judged:
            value = self.judge(self.encoder, self.progress)
            self.say(f"fine-tuning: step {step:,}, dev MRR@10 {value:.4f} {self.judge.words}")
            if not step:
                self.state["start"] = value
            better = not step or value > self.state["best"]
            if better:
                self.state["best"], self.state["best_step"] = value, step
        self.save(best=better)


class _Sides:
    """The two texts of a pair, and who shares a document."""

    def __init__(self, names: TrainingInputs, entries: Entries, texts: Sequence[str]) -> None:
        self.inputs, self.texts = names.inputs, texts
        self.docids = 0 if entries.spellings is None else len(names.docids)  # entries that are docids come first
        if list(texts[: self.docids]) != list(names.docids[: self.docids]):
            raise ValueError("the entries are not the docids that the pairs are drawn from")
        number = {doc_id: i for i, doc_id in enumerate(entries.doc_ids)}
        self.document = np.array([number.get(doc_id, -1) for doc_id in names.doc_ids], np.int64)  # among the entries'
        text_of = np.full(len(entries.doc_ids) + 1, -1, np.int64)
        text_of[entries.documents[entries.offsets[self.docids :][:-1]]] = np.arange(self.docids, len(entries))
        self.text = text_of[self.document]  # the entry that is the text of each document; -1 if it has none
        self.input_names, self.input_documents = names.names()
        self.offsets, self.documents = entries.offsets, entries.documents

    def targets(self, batch: Epoch) -> Ints:
        """The entry that each input should find; -1 if its document has none. Of both kinds, texts are every other."""
        text = self.text[batch.documents]
        if not self.docids:
            return text
        every_other = (np.arange(len(text)) % 2 == 1) & (text >= 0)
        return np.where(every_other, text, batch.targets)

    def usable(self, batch: Epoch) -> NDArray[np.bool_]:
        """Pairs of two different texts."""
        targets = self.targets(batch)
        different: NDArray[np.bool_] = (targets >= self.docids) | (targets != batch.inputs)
        return different & (targets >= 0)

    def batch(self, batch: Epoch) -> tuple[list[str], list[str], NDArray[np.bool_]]:
        """Inputs, targets, and [i, j] where target j names a document that input i names, too, and is not its own."""
        used = self.usable(batch)
        inputs, targets = batch.inputs[used], self.targets(batch)[used]
        first, last = (np.searchsorted(self.input_names, inputs, side=side) for side in ("left", "right"))
        left = [self.document[self.input_documents[a:b]] for a, b in zip(first, last, strict=True)]
        right = [self.documents[self.offsets[row] : self.offsets[row + 1]] for row in targets]
        known, places = np.unique(np.concatenate([*left, *right, np.zeros(0, np.int64)]), return_inverse=True)
        sides = np.zeros((2 * len(inputs), len(known)), np.float32)
        sides[np.repeat(np.arange(2 * len(inputs)), [len(part) for part in (*left, *right)]), places] = 1
        if len(known) and known[0] < 0:
            sides[:, 0] = 0  # documents without an entry are nobody's
        shared = sides[: len(inputs)] @ sides[len(inputs) :].T > 0
        np.fill_diagonal(shared, val=False)
        return [self.inputs[i] for i in inputs], [self.texts[i] for i in targets], shared


class Judge:
    """Dev MRR@10 of an encoder among all entries, or those of a sample of documents, the relevant ones included."""

    def __init__(self, entries: Entries, texts: list[str], dev: Queries, most: int, seed: int = 0) -> None:
        self.dev = dev
        rows = np.repeat(np.arange(len(entries)), np.diff(entries.offsets))
        documents = entries.documents
        if len(entries) > most:
            number = {doc_id: i for i, doc_id in enumerate(entries.doc_ids)}
            relevant = {number[doc_id] for wanted in dev.relevant for doc_id in wanted if doc_id in number}
            order = np.random.default_rng(seed).permutation(len(entries.doc_ids))
            order = np.concatenate([np.array(sorted(relevant), np.int64), order[~np.isin(order, list(relevant))]])
            sizes = np.bincount(documents, minlength=len(entries.doc_ids))[order]
            kept = order[: max(len(relevant), int(np.searchsorted(np.cumsum(sizes), most, side="right")))]
            inside = np.isin(documents, kept)
            rows, documents = rows[inside], documents[inside]
        by_document = np.lexsort((rows, documents))
        rows, documents = rows[by_document], documents[by_document]
        self.rows, self._place = np.unique(rows, return_inverse=True)
        self._named, self._first = np.unique(documents, return_index=True)
        self._doc_ids, self._texts = entries.doc_ids, [texts[row] for row in self.rows]
        self.words = f"on {len(dev)} queries" + (
            "" if len(self.rows) == len(entries) else f" among {len(self.rows):,} of {len(entries):,} entries"
        )

    def __len__(self) -> int:
        return len(self.dev)

    def __call__(self, encoder: Encoder, progress: Progress | None = None) -> float:
        """Encode entries and queries anew, and rank."""
        was_training = encoder.training
        features = FeatureCache(encoder.eval(), None)  # by onnxruntime on a CPU: five times as fast as torch
        vectors = features.vectors(self._texts, progress, "checking on dev").astype(np.float32)
        queries = features.vectors(self.dev.texts).astype(np.float32)
        encoder.train(was_training)
        return mrr_at([self._ranked(vectors @ query) for query in queries], self.dev.relevant, 10)

    def _ranked(self, scores: Floats) -> list[str]:
        best = np.maximum.reduceat(scores[self._place], self._first)
        order = np.lexsort((self._named, -best))[:10]
        return [self._doc_ids[i] for i in self._named[order].tolist()]
