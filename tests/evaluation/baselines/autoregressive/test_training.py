"""Training of the autoregressive baselines: seeds, the best weights, checkpoints after a kill, and the curve."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pixnar.base.errors import PixnarError
from pixnar.evaluation.baselines.autoregressive import training
from pixnar.evaluation.baselines.autoregressive.backbone import Seq2Seq, padded
from pixnar.evaluation.baselines.autoregressive.ids import END, FIRST
from pixnar.evaluation.baselines.autoregressive.pairs import Pair
from pixnar.evaluation.baselines.autoregressive.training import Learned, Learning, learn, write_curve
from pixnar.model.encoder import Encoder
from pixnar.train import budgeted
from tests.helpers.tiny_model import TEXTS, body, tokenizer

ROOT = Path(__file__).resolve().parents[4]
LEARNING = Learning(pairs=48, batch=8, warmup=1, learning_rate=3e-3, encoder_learning_rate=1e-3)


class Numbers:
    """Each text has its number as an id."""

    def __len__(self) -> int:
        return len(TEXTS)

    def pair(self, number: int) -> Pair:
        return Pair(TEXTS[number % len(TEXTS)], number % 2, (FIRST + number % len(TEXTS), END))


class SlowNumbers(Numbers):
    """Slow enough to be killed in between."""

    def pair(self, number: int) -> Pair:
        time.sleep(0.02)
        return super().pair(number)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def model_of() -> Seq2Seq:
    pieces = tokenizer()
    return Seq2Seq(Encoder(body("bert", len(pieces)), pieces, name="tiny"), FIRST + len(TEXTS), most=2, views=2)


def weights(model: Seq2Seq) -> dict[str, torch.Tensor]:
    return model.state_dict()


def same(one: Seq2Seq, other: Seq2Seq) -> bool:
    return all(torch.equal(value, weights(other)[name]) for name, value in weights(one).items())


def trained(folder: Path, learning: Learning = LEARNING, **rest: Any) -> tuple[Seq2Seq, Learned]:
    model = model_of()
    return model, learn(model, rest.pop("source", Numbers()), rest.pop("judge", None), learning, folder=folder, **rest)


def right(model: Seq2Seq) -> float:
    """The share of texts whose number is the likeliest."""
    model.eval()
    with torch.no_grad():
        log_p = model.forced(model.source(TEXTS, [i % 2 for i in range(len(TEXTS))]), torch.full((len(TEXTS), 1), END))
    return float((log_p[:, 0].argmax(-1) == FIRST + torch.arange(len(TEXTS))).float().mean())


def test_it_learns_and_the_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    longer = replace(LEARNING, pairs=640)
    model, learned = trained(tmp_path / "a", longer)
    assert right(model) == 1.0
    assert (learned.pairs, learned.best_pairs, learned.best) == (640, 640, None)
    assert learned.curve[-1]["loss"] < learned.curve[0]["loss"]  # type: ignore[operator]
    assert [row["pairs"] for row in learned.curve] == [160, 320, 480, 640]
    assert same(model, trained(tmp_path / "b", longer)[0])
    assert not same(model, trained(tmp_path / "c", replace(longer, seed=1))[0])


def test_word_embeddings_of_the_encoder_stay_and_the_rest_learns(tmp_path: Path) -> None:
    before, (after, _) = weights(model_of()), trained(tmp_path)
    still = {name for name, value in weights(after).items() if torch.equal(value, before[name])}
    assert "encoder.body.embeddings.word_embeddings.weight" in still
    assert not {"views", "embeddings", "encoder.body.encoder.layer.0.attention.self.query.weight"} & still


def test_the_best_weights_are_kept(tmp_path: Path) -> None:
    values = iter([0.1, 0.7, 0.3, 0.7])
    seen: list[dict[str, torch.Tensor]] = []

    def judge(model: Seq2Seq) -> float:
        seen.append({name: value.clone() for name, value in weights(model).items()})
        return next(values)

    said: list[str] = []
    model, learned = trained(tmp_path, judge=judge, say=said.append)
    assert (learned.best, learned.best_pairs, learned.pairs) == (0.7, 24, 48)
    assert all(torch.equal(value, seen[1][name]) for name, value in weights(model).items())
    assert said[1] == "training: 24 pairs, dev MRR@10 0.7000 on a sample"
    write_curve(tmp_path, learned)
    assert [row["dev"] for row in json.loads((tmp_path / "curve.json").read_text())] == [0.1, 0.7, 0.3, 0.7]
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


_TRAIN = (
    "import sys; from tests.evaluation.baselines.autoregressive import test_training as t; t.train_slowly(sys.argv[1])"
)


def train_slowly(folder: str) -> None:
    """Slowly, so that it can be killed where we want."""
    torch.set_num_threads(1)
    budgeted._SAVE_SECONDS = 0.0
    trained(Path(folder), source=SlowNumbers())


def test_a_killed_run_resumes_to_the_same_weights(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _TRAIN, str(tmp_path / "a")], cwd=ROOT) as child:
        until = time.monotonic() + 120
        while not list((tmp_path / "a").glob("step-*")):
            assert child.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < until
            time.sleep(0.01)
        child.kill()
    assert child.returncode == -signal.SIGKILL
    said: list[str] = []
    model, learned = trained(tmp_path / "a", say=said.append)
    assert said[0].startswith("training: resumed at ")
    assert same(model, trained(tmp_path / "b")[0])
    assert learned.pairs == 48
    trained(tmp_path / "a", replace(LEARNING, seed=2), say=said.append)
    assert "starting again" in said[-1]


def test_minutes_are_kept_by_the_clock(tmp_path: Path) -> None:
    _, learned = trained(tmp_path, Learning(minutes=0.02, batch=2), source=SlowNumbers())
    assert 0.02 <= learned.minutes < 0.1
    assert 4 <= learned.pairs <= 60  # at least 0.04 seconds a step


def test_what_is_wrong(tmp_path: Path) -> None:
    for learning, reason in (
        (Learning(), "would never end"),
        (replace(LEARNING, batch=0), "batch 0 is not possible: give 1 or more"),
        (replace(LEARNING, learning_rate=float("nan")), "learning_rate nan is not possible"),
        (replace(LEARNING, minutes=float("inf")), "minutes inf is not possible"),
    ):
        with pytest.raises(PixnarError, match=reason):
            trained(tmp_path, learning)
    with pytest.raises(PixnarError, match="lower the learning rate"):
        trained(tmp_path, replace(LEARNING, pairs=800, learning_rate=1e30, encoder_learning_rate=1e30))


def test_a_step_in_parts_has_the_gradient_of_the_whole() -> None:
    class Uneven(Numbers):
        def pair(self, number: int) -> Pair:
            text, view, target = super().pair(number)
            return Pair(text, view, target if number % 3 else target[:1])

    model, source = model_of().eval(), Uneven()
    pairs = [source.pair(number) for number in range(10)]
    targets = padded([pair.target for pair in pairs])
    model.loss(model.source([pair.text for pair in pairs], [pair.view for pair in pairs]), targets).backward()  # type: ignore[no-untyped-call]
    wanted = {name: part.grad.clone() for name, part in model.named_parameters() if part.grad is not None}
    model.zero_grad()
    run = training._Run(model, source, None, LEARNING, None, print)
    parts = training._by_length(pairs)
    assert sorted(len(part.pairs) for part in parts) == [1, 3, 3, 3]
    for part in parts:
        run._backward(part)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and name in wanted:
            torch.testing.assert_close(parameter.grad, wanted[name], atol=1e-6, rtol=1e-4)
