"""Small training runs; as a program: runs that are killed and started again, beside runs that are not."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from pixnar.base.progress import Progress
from pixnar.corpus import open_corpus
from pixnar.model.build import Docids, build_model
from pixnar.model.encoder import Encoder
from pixnar.model.features import FeatureCache
from pixnar.model.nar import Nar
from pixnar.recipe import Train
from pixnar.scoring import Priors, ScoreRule
from pixnar.train import log
from pixnar.train.data import TrainingData
from pixnar.train.loop import Trained, train
from pixnar.vocab import Vocabulary
from tests.helpers.fit_corpora import WORDS, write_small
from tests.helpers.tiny_model import save_encoder

SLOTS = 5


class TrainingSetup(NamedTuple):
    """All that a run reads."""

    encoder: Encoder
    data: TrainingData
    priors: Priors

    def model(self, design: str = "mlp") -> Nar:
        """A new model, always the same; the design `solved` is mlp with rows that compose docids, and word pieces."""
        features = FeatureCache(Encoder.load(self.encoder.name), None)
        head = {"mlp": "encoder", "mask": "random", "solved": "solved"}[design]
        return build_model(
            self.data.vocabulary,
            features,
            self.priors,
            slots=SLOTS,
            design="mask" if design == "mask" else "mlp",
            head=head,
            hidden=16,
            docids=docids(self.data, pieces=True) if head == "solved" else None,
        )


def training_setup(folder: Path, documents: int = 8, docids: int = 3) -> TrainingSetup:
    """A corpus, its vocabulary and a random BERT, made in a folder."""
    if not (folder / "corpus").exists():
        write_small(folder / "corpus", documents, docids)
        save_encoder(folder / "encoder", texts=WORDS)
    corpus = open_corpus(folder / "corpus")
    vocabulary = Vocabulary.build((row.docid for row in corpus.docids()), 600, min_count=2, threads=1)
    data = TrainingData.read(corpus, vocabulary)
    encoder = Encoder.load(folder / "encoder")
    data.vectors = FeatureCache(encoder, None).vectors(data.inputs)
    return TrainingSetup(encoder, data, Priors.count(data.token_counts()[:-1], data.tokens.lengths, SLOTS))


def docids(data: TrainingData, *, pieces: bool, folder: Path | None = None) -> Docids:
    """What phrase rows are solved from."""
    assert data.vectors is not None
    return Docids(tokens=data.cut_tokens(SLOTS), vectors=data.vectors[: len(data.docids)], pieces=pieces, folder=folder)


def options(**changes: Any) -> Train:
    """Few and large steps, whatever the clock says."""
    start: dict[str, Any] = {"minutes": 0.0, "steps": 12, "batch": 8, "warmup": 2, "evaluate_every": 3, "patience": 0}
    return Train(**(start | changes))


def run(
    made: TrainingSetup,
    folder: Path,
    wish: Train,
    *,
    rule: ScoreRule | None = None,
    model: Nar | None = None,
    evaluate: Callable[[Nar], float] | None = None,
    progress: Progress | None = None,
) -> tuple[Nar, Trained]:
    """Train a model in a folder."""
    model = model or made.model()
    trained = train(
        model, made.data, wish, rule or ScoreRule(), made.priors, folder=folder, evaluate=evaluate, progress=progress
    )
    return model, trained


def losses(folder: Path) -> list[tuple[int, float]]:
    """Step and loss of each row of a log."""
    return [(row["step"], row["loss"]) for row in log.read(folder) if "loss" in row]


def movement(model: Nar) -> float:
    """Stands for a figure on dev: decided by the weights alone, up and down."""
    with torch.inference_mode():
        x = model.query_vectors(["balin demor"])[0]
    return float(np.sin(50 * x.astype(np.float64).sum()))


def killed(work: Callable[[], object], when: Callable[[], bool]) -> None:
    """Do the work in a child and kill it at some moment; it must not have finished by then."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    while not when():
        ended, _ = os.waitpid(child, os.WNOHANG)
        assert not ended, "the child ended by itself"
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the child ended by itself"


def main(folder: Path, settings: list[dict[str, Any]], kills: list[int]) -> None:
    """Every wish is trained twice, once in one go, once killed at some steps; prints the losses of both."""
    torch.set_num_threads(1)
    made = training_setup(folder)
    out = []
    for i, changes in enumerate(settings):
        design = changes.pop("design", "mlp")
        rule = ScoreRule(score=changes.pop("score", "probability"))
        wish = options(**changes)
        whole, broken = folder / f"whole{i}", folder / f"broken{i}"
        model, _ = run(made, whole, wish, rule=rule, model=made.model(design), evaluate=movement)

        def slow(_: str, __: int, ___: int | None) -> None:
            time.sleep(0.02)  # so that it can be killed where we want

        def reached(step: int, where: Path = broken) -> bool:
            return (where / "log.jsonl").exists() and any(row["step"] >= step for row in log.read(where))

        for step in kills:
            killed(
                lambda where=broken, wish=wish, rule=rule, design=design: run(  # type: ignore[misc]
                    made, where, wish, rule=rule, model=made.model(design), evaluate=movement, progress=slow
                ),
                lambda step=step, reached=reached: reached(step),  # type: ignore[misc]
            )
        before = losses(broken)
        again, _ = run(made, broken, wish, rule=rule, model=made.model(design), evaluate=movement)
        same = all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
        out.append({"whole": losses(whole), "broken": losses(broken), "before": len(before), "same": same})
    print(json.dumps(out))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3]))
