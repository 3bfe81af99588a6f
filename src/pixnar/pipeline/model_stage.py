"""Model stage: from training data to a trained, calibrated model, made once per fit; how long that takes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import PixnarError
from pixnar.base.progress import Progress
from pixnar.base.storage import write_json
from pixnar.base.workdir import staged
from pixnar.evaluation.baselines.bi_encoder import Tuning, fine_tune
from pixnar.evaluation.baselines.entries import Entries
from pixnar.evaluation.queries import Queries
from pixnar.fusion.terms import Ngrams
from pixnar.index.files import (
    TRAINING,
)
from pixnar.model.build import Docids, build_model, calibrate
from pixnar.model.encoder import Encoder
from pixnar.model.features import FeatureCache, KnownVectors
from pixnar.model.nar import Nar, scorer_of
from pixnar.model.process_group import SINGLE
from pixnar.model.solve import SolveOptions
from pixnar.pipeline.context import FitContext, start_rule, x_of
from pixnar.pipeline.sources import choose_precision
from pixnar.pipeline.tune import (
    docid_mrr,
)
from pixnar.recipe import Recipe, Train
from pixnar.scoring import Priors
from pixnar.search import Decoder
from pixnar.search.ranker import Ranker
from pixnar.table import DocidTable
from pixnar.train.data import TrainingData, TrainingInputs
from pixnar.train.log import plot
from pixnar.train.loop import Trained, pick_device, train

Floats = NDArray[np.float32]

_TEXTS = 600.0  # short texts that a core encodes a second, with MiniLM's 11 million weights beside its embeddings
_WEIGHTS = 11e6
_SOLVED = 6e7  # rows that a core adds up a second while solving, 384 numbers each
_ROUNDS = 40
_SEARCHES = 250.0  # dev queries that a core answers a second for a hundred thousand docids
_TRIES = 14  # times that dev is asked while settings and weights are chosen


class Estimate(NamedTuple):
    """Minutes of the long stages."""

    encoding: float
    solving: float
    training: float
    shortlist: float
    choices: float

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {_minutes(value)}" for name, value in self._asdict().items() if value > 0)
        return f"about {_minutes(sum(self))} minutes in all: {parts}"


def estimate(
    recipe: Recipe, *, docids: int, tokens: int, texts: int, weights: float, width: int, minutes: float, dev: int
) -> Estimate:
    """Estimate a fit of so many docids with so many tokens in all, and `texts` to encode by an encoder of some weights.

    >>> sizes = {"docids": 20_000, "tokens": 63_000, "texts": 21_000, "weights": 11e6, "width": 384}
    >>> print(estimate(Recipe(), **sizes, minutes=2, dev=1000))  # doctest: +ELLIPSIS
    about ... minutes in all: encoding ..., solving ..., training 2, choices ...
    """
    cores = min(os.cpu_count() or 1, 8)
    encoding = texts * max(weights, 1e5) / _WEIGHTS / (_TEXTS * cores) / 60
    solving = 0.0
    if recipe.model.head == "solved":
        solving = _ROUNDS * 2 * tokens * width / 384 / (_SOLVED * cores) / 60
    searches = dev * _TRIES * max(1.0, docids / 1e5)
    learned = recipe.shortlist.learn and recipe.scoring.score != "composed"  # cells take seconds
    shortlist = recipe.shortlist.minutes if learned else 0.0
    return Estimate(encoding, solving, minutes, shortlist, searches / (_SEARCHES * cores) / 60)


def _minutes(value: float) -> str:
    return "under 1" if value < 1 else f"{value:.0f}"


_NO_QUERIES = Queries([], [], [])  # the weights of the last step are kept: the stages that follow judge the whole


def tune_encoder(
    encoder: Encoder,
    inputs: TrainingInputs,
    steps: int,
    folder: Path,
    *,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> None:
    """Train an encoder to put the docids of a document near to each other, and write it to a folder.

    An interrupted run resumes from its checkpoints beside the folder; a folder that is there is left as it is.
    """
    if folder.exists():
        return
    docids = list(inputs.docids)
    offsets = np.searchsorted(inputs.pair_docid, np.arange(len(docids) + 1))
    entries = Entries(inputs.doc_ids, offsets, inputs.pair_document, docids)
    work = folder.with_name(f"{folder.name}.checkpoints")
    fine_tune(
        encoder,
        inputs,
        entries,
        docids,
        _NO_QUERIES,
        Tuning(steps=steps, seed=seed, device=device),
        folder=work,
        progress=progress,
        say=say,
    )
    with staged(folder) as draft:
        encoder.save(draft)
    shutil.rmtree(work, ignore_errors=True)


CONTRAST = "contrast"  # folder of the fine-tuned encoder
_CONTRAST_STEP = 1.0  # seconds on a core, of MiniLM and short texts …
_CONTRAST_STEP_GPU = 0.05  # … and on other devices, a guess
_MINILM = 11e6  # weights of MiniLM beside its embeddings
_DOCIDS_PER_STEP, _MOST_STEPS = 250, 800  # of contrast
_PAIRED = 0.1  # of the documents must have two texts
_CONTRAST_SHARE = 0.4  # of the training time, at most


class ModelStage:
    """Builds and trains the model of a fit; `features` has the vectors of its encoder afterwards."""

    features: FeatureCache

    def __init__(self, fit: FitContext) -> None:
        self.fit = fit

    def run(self, data: TrainingData, table: DocidTable, priors: Priors, slots: int, dev: Queries) -> Nar:
        """Built, trained and calibrated, once."""
        path = self.fit.model_path
        known = self.fit.work / "facts.json"
        if self.fit.world.tell((path / "model.json").exists()):
            self.fit.report.facts |= json.loads(known.read_bytes()) if known.exists() else {}
            self.features = self._features(self._encoder(path / "encoder"), data, dev)
            self._later_vectors(data)
            return self._whole(path)
        settings = self.fit.recipe.model
        encoder = self._encoder(settings.encoder)
        steps, options = self._plan(encoder, data)
        minutes = options.minutes + steps * self._step_seconds(encoder) / 60
        self.fit.say(
            f"this fit takes {self._estimate(encoder, data, dev, minutes)}; interrupted, the same command resumes it"
        )
        if steps:
            encoder = self._contrast(encoder, data, steps)
        self.features = self._features(encoder, data, dev)
        docids: KnownVectors | None = None
        if (settings.slot_design == "mlp" and options.fine_tune < 1) or options.negatives:
            self._input_vectors(data)
            if data.vectors is not None:
                docids = KnownVectors(data.docids, data.vectors)
        solved = None
        if settings.head == "solved":
            if data.vectors is None:
                self._input_vectors(data)
            assert data.vectors is not None
            solved = Docids(
                tokens=data.cut_tokens(slots),
                vectors=data.vectors[: len(data.docids)],
                pieces=self._with_pieces(),
                options=SolveOptions(ridge=settings.ridge, threads=self.fit.threads),
                folder=self.fit.work / "solve",
            )
        model = build_model(
            data.vocabulary,
            self.features,
            priors,
            slots=slots,
            design=settings.slot_design,
            head=settings.head,
            bias=settings.bias,
            hidden=settings.hidden,
            seed=self.fit.recipe.train.seed,
            docids=solved,
            progress=self.fit.progress,
            group=self.fit.world,
            known=docids,
        )
        trained = self._train(model, data, options, table, priors, dev)
        model.eval()
        if self.fit.world.size == 1:
            model.cpu()
        if model.design == "mask" or self.fit.recipe.train.fine_tune:  # the encoder is another now
            self.features = self._features(model.encoder, data, dev)
            data.vectors = None
        self._later_vectors(data)
        self._calibrate(model, data, dev)
        self.fit.report.facts |= {"steps": trained.steps, "best_step": trained.best_step, "softmax": trained.softmax}
        if self.fit.world.first:
            write_json(known, self.fit.report.facts)
        model.save_pretrained(path)
        return model if self.fit.world.size == 1 else self._whole(path)

    def _plan(self, encoder: Encoder, data: TrainingData) -> tuple[int, Train]:
        """Steps of contrast, and the training options with the time that is left for them."""
        recipe, options, wanted = self.fit.recipe, self._limited(data), self.fit.recipe.train.contrast
        if isinstance(wanted, int):
            return wanted, options
        ours = recipe.scoring.score == "composed" and recipe.model.head == "solved"
        if not ours or data.paired_share() < _PAIRED:
            return 0, options
        seconds = self._step_seconds(encoder)
        steps = contrast_steps(len(data.docids), seconds, options.minutes)
        left = options.minutes and options.minutes - steps * seconds / 60
        return steps, replace(options, minutes=left)

    def _step_seconds(self, encoder: Encoder) -> float:
        """About how long a step of contrast takes; a rate, not a measurement, so that a resumed fit plans the same."""
        device = pick_device(self.fit.recipe.train.device)
        return (_CONTRAST_STEP if device.type == "cpu" else _CONTRAST_STEP_GPU) * _weights(encoder) / _MINILM

    def _limited(self, data: TrainingData) -> Train:
        """The recipe's options, with a time limit by the size of the corpus where they have no limit."""
        options = self.fit.recipe.train
        if options.minutes or options.steps or options.epochs:
            return options
        return replace(options, minutes=default_minutes(len(data.docids) + len(data.queries)))

    def _contrast(self, encoder: Encoder, data: TrainingData, steps: int) -> Encoder:
        """The encoder after fine-tuning by contrast, which the first process does for all."""
        folder, options = self.fit.work / CONTRAST, self.fit.recipe.train
        if self.fit.world.first:
            tune_encoder(
                encoder,
                data,
                steps,
                folder,
                seed=options.seed,
                device=options.device,
                progress=self.fit.progress,
                say=self.fit.say,
            )
            self.fit.say(f"encoder: fine-tuned by contrast, {steps:,} steps")
        self.fit.world.wait()
        tuned = self._encoder(folder)
        tuned.name = encoder.name  # the folder is removed at the end
        return tuned

    def _estimate(self, encoder: Encoder, data: TrainingData, dev: Queries, minutes: float) -> Estimate:
        """How long the stages from here on take, with so many minutes of training."""
        phrases = 0 if self.fit.recipe.model.head == "solved" and self._with_pieces() else len(data.vocabulary)
        pieces_of_text = self.fit.recipe.fuse.text_vectors * len(data.doc_ids)  # at most
        return estimate(
            self.fit.recipe,
            docids=len(data.docids),
            tokens=len(data.tokens.ids),
            texts=len(data.docids) + len(data.queries) + len(dev) + phrases + pieces_of_text,
            weights=_weights(encoder),
            width=encoder.width,
            minutes=minutes,
            dev=len(dev),
        )

    def _with_pieces(self) -> bool:
        """Whether phrases share rows of word pieces: only training by the composed score knows of them."""
        return self.fit.recipe.model.pieces and self.fit.recipe.scoring.score == "composed"

    def _whole(self, path: Path) -> Nar:
        """The trained model in the memory of the machine, not of a device; only the first process needs all of it."""
        return Nar.from_pretrained(path, SINGLE if self.fit.world.first else self.fit.world)

    def _encoder(self, name: str | Path) -> Encoder:
        encoder = Encoder.load(name, max_pieces=self.fit.recipe.model.max_pieces)
        if self.fit.world.size > 1:  # each encodes its share of the texts
            encoder.to(self.fit.world.device(pick_device(self.fit.recipe.train.device)))
        return encoder

    def _features(self, encoder: Encoder, data: TrainingData, dev: Queries) -> FeatureCache:
        """Vectors of texts; their precision is chosen once. Those of a tuned encoder are of no use to other fits."""
        shared = self.fit.cache / "features"
        tuned = (self.fit.work / CONTRAST).exists()
        folder, note = self.fit.work / "features" if tuned else shared, self.fit.work / "vectors.json"
        if self.fit.world.first and "vectors" not in self.fit.report.facts:
            if note.exists():
                chosen = json.loads(note.read_bytes())
            else:
                settings, phrases = self.fit.recipe.model.vectors, len(data.vocabulary)
                chosen = choose_precision(encoder, folder, settings, data, dev, phrases, self.fit.say, self.fit.threads)
                write_json(note, chosen)
            self.fit.report.facts["vectors"] = chosen
        precision = self.fit.world.tell(self.fit.report.facts["vectors"]["precision"] if self.fit.world.first else "")
        return FeatureCache(encoder, folder, precision=precision, threads=self.fit.threads)

    def _later_vectors(self, data: TrainingData) -> None:
        """What the shortlist and dense fusion need, by the encoder as it is after training."""
        listed = self.fit.recipe.shortlist.learn and self.fit.recipe.model.slot_design == "mlp"
        if data.vectors is None and (listed or self.fit.recipe.fuse.dense):
            self._input_vectors(data)

    def _input_vectors(self, data: TrainingData) -> None:
        if self.fit.world.size > 1:
            path = self.fit.work / "inputs.vectors"
            kinds = (data.docids, data.queries)
            data.vectors = self.features.mapped(kinds, path, self.fit.world, self.fit.progress, "encoding docids")
            return
        vectors = self.features.vectors(data.docids, self.fit.progress, "encoding docids")
        if data.queries:
            vectors = np.vstack(
                [vectors, self.features.vectors(data.queries, self.fit.progress, "encoding queries and passages")]
            )
        data.vectors = vectors

    def _train(
        self, model: Nar, data: TrainingData, options: Train, table: DocidTable, priors: Priors, dev: Queries
    ) -> Trained:
        some = dev.first(options.dev_queries) if options.dev_queries else dev.first(0)
        rule = start_rule(self.fit.recipe)
        frozen = model.design == "mlp" and not options.fine_tune
        pooled = None
        if frozen and len(some) and self.fit.world.first:
            pooled = self.features.vectors(some.texts).astype(np.float32)

        decoder: Decoder | None = None  # of the first check; a scorer has a copy of the rows, and is not kept

        def evaluate(current: Nar) -> float:
            nonlocal decoder
            x = x_of(current, some.texts, pooled)
            scorer = scorer_of(current, priors, rule)
            ranker = Ranker(table, scorer, Ngrams(data.vocabulary), made=decoder)
            if rule.score != "composed":  # there the factors of docids change with the rows
                decoder = ranker.decoder
            return docid_mrr(ranker, ranker.queries(some.texts, x, x[:, 0]), some.relevant)

        home = self.fit.work / "training"
        trained = train(
            model,
            data,
            options,
            rule,
            priors,
            folder=home,
            evaluate=evaluate if len(some) else None,
            progress=self.fit.progress,
        )
        if not self.fit.world.first:
            return trained
        kept = self.fit.folder / TRAINING
        kept.mkdir(exist_ok=True)
        shutil.copyfile(home / "log.jsonl", kept / "log.jsonl")
        if (home / "tensorboard").is_dir():
            shutil.copytree(home / "tensorboard", kept / "tensorboard", dirs_exist_ok=True)
        try:
            plot(home, kept / "loss.png")
        except PixnarError as error:
            self.fit.say(str(error))
        ended = " (early: dev no longer improved)" if trained.stopped_early else ""
        self.fit.say(
            f"training: {trained.steps:,} steps{ended}, softmax {trained.softmax}, kept step {trained.best_step:,}"
        )
        return trained

    def _calibrate(self, model: Nar, data: TrainingData, dev: Queries) -> None:
        """Measure log Z per slot on dev, or on docids where there is no dev split."""
        texts = (dev.texts or data.docids)[:256]
        x = model.slot_vectors(texts)
        before = model.log_z.cpu().clone()
        left = calibrate(model, self.fit.world.tell_array(x))
        raw = np.abs(left + model.log_z.cpu().numpy() - before.numpy())[:, 1:].mean()
        self.fit.report.facts |= {"log_z_abs": float(raw), "log_z_abs_calibrated": float(np.abs(left[:, 1:]).mean())}


def default_minutes(inputs: int) -> float:
    """How long to train where the recipe sets no limit: a few passes over all inputs, docids and queries.

    >>> [default_minutes(n) for n in (20_000, 500_000, 10_000_000)]
    [2.0, 20.5, 60.0]
    """
    return min(60.0, max(2.0, 0.5 + inputs / 25_000))


def contrast_steps(docids: int, seconds: float, minutes: float) -> int:
    """Steps of contrast for so many docids, where a step takes so many seconds; `minutes` of training 0: no limit.

    >>> [contrast_steps(n, 1.0, 60.0) for n in (200, 20_000, 500_000)], contrast_steps(20_000, 1.0, 2.0)
    ([0, 80, 800], 48)
    """
    steps = min(docids // _DOCIDS_PER_STEP, _MOST_STEPS)
    return min(steps, int(_CONTRAST_SHARE * 60 * minutes / seconds)) if minutes else steps


def _weights(encoder: Encoder) -> float:
    """Weights of an encoder beside its embeddings, which cost no time."""
    body: Any = encoder.body
    embeddings = body.get_input_embeddings()
    return float(sum(p.numel() for p in body.parameters()) - sum(p.numel() for p in embeddings.parameters()))
