from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pixnar.base.errors import PixnarError
from pixnar.model.nar import Nar
from pixnar.scoring import ScoreRule
from pixnar.train import checkpoint, log
from pixnar.train.loop import choose_softmax, pick_device
from pixnar.train.optimizers import schedule
from tests.helpers.training_runs import TrainingSetup, losses, movement, options, run, training_setup

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TrainingSetup:
    return training_setup(tmp_path_factory.mktemp("setup"))


def scripted(*values: float) -> Callable[[Nar], float]:
    """Dev figures one after the other, whatever the model; the last one for ever."""
    left = list(values)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


@pytest.mark.parametrize("changes", [{}, {"fine_tune": 0.5}, {"softmax": "sampled", "sample": 40, "accumulate": 2}])
def test_the_same_seed_gives_the_same_run(made: TrainingSetup, tmp_path: Path, changes: dict[str, Any]) -> None:
    runs = [run(made, tmp_path / name, options(steps=6, **changes))[0] for name in ("a", "b")]
    first = losses(tmp_path / "a")
    assert [step for step, _ in first] == [1, 2, 3, 4, 5, 6]
    assert first == losses(tmp_path / "b")
    assert all(torch.equal(a, b) for a, b in zip(runs[0].parameters(), runs[1].parameters(), strict=True))
    run(made, tmp_path / "c", options(steps=6, seed=1, **changes))
    assert losses(tmp_path / "c") != first


def test_the_loss_falls(made: TrainingSetup, tmp_path: Path) -> None:
    run(made, tmp_path, options(steps=40, batch=16, learning_rate=5e-3, head_learning_rate=2e-2))
    found = [loss for _, loss in losses(tmp_path)]
    assert sum(found[-5:]) < 0.6 * sum(found[:5])
    row = next(row for row in log.read(tmp_path) if "loss" in row)
    assert row.keys() >= {"l1", "l2", "l3", "ranking", "right", "log_z", "rate", "examples_per_second"}


@pytest.mark.parametrize("design", ["mlp", "mask"])
def test_which_weights_move(made: TrainingSetup, tmp_path: Path, design: str) -> None:
    before = made.model(design)
    after, trained = run(made, tmp_path, options(steps=2, warmup=0), model=made.model(design))
    assert trained.steps == 2
    moved = {
        name.split(".")[0]
        for (name, a), (_, b) in zip(before.named_parameters(), after.named_parameters(), strict=True)
        if not torch.equal(a, b)
    }
    assert moved == ({"slots", "head"} if design == "mlp" else {"slots", "head", "encoder"})


def test_killed_and_started_again(tmp_path: Path) -> None:
    """Twice killed with SIGKILL at some moment: the losses are those of a run that was not."""
    wishes: list[dict[str, Any]] = [
        {"steps": 14},
        {"steps": 14, "fine_tune": 0.5},
        {"steps": 13, "fine_tune": 0.5, "softmax": "sampled", "sample": 50, "minutes": 60.0},
        {"steps": 13, "design": "mask", "optimizer": "adam"},
        {"steps": 14, "design": "solved", "score": "composed", "mine_every": 4},
        {"steps": 13, "design": "solved", "score": "composed", "fine_tune": 0.5, "optimizer": "rows", "accumulate": 2},
        {"steps": 13, "score": "composed", "rank_against": "all", "teacher": 0.5},
    ]
    command = [sys.executable, "-m", "tests.helpers.training_runs", str(tmp_path), json.dumps(wishes), "[5, 11]"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=250
    )
    assert done.returncode == 0, done.stderr
    for wish, found in zip(wishes, json.loads(done.stdout), strict=True):
        assert [step for step, _ in found["whole"]] == list(range(1, wish["steps"] + 1))
        assert found["before"] >= 11
        assert [step for step, _ in found["broken"]] == [step for step, _ in found["whole"]], wish
        for (step, whole), (_, broken) in zip(found["whole"], found["broken"], strict=True):
            assert broken == pytest.approx(whole, abs=1e-6, rel=1e-6), (wish, step)
        assert found["same"], wish


def test_resuming_a_finished_run_changes_nothing(made: TrainingSetup, tmp_path: Path) -> None:
    wish = options(steps=5, fine_tune=0.4)
    first, trained = run(made, tmp_path, wish, evaluate=movement)
    rows = log.read(tmp_path)
    again, twice = run(made, tmp_path, wish, evaluate=movement)
    assert twice == trained
    assert [row["step"] for row in log.read(tmp_path)] == [row["step"] for row in rows]
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))


def test_the_best_weights_are_kept(made: TrainingSetup, tmp_path: Path) -> None:
    at: dict[int, dict[str, torch.Tensor]] = {}
    values = iter([0.1, 0.3, 0.7, 0.2, 0.7])

    def evaluate(model: Nar) -> float:
        assert not model.training
        at[len(at)] = {name: value.clone() for name, value in model.state_dict().items()}
        return next(values)

    model, trained = run(made, tmp_path, options(steps=12), evaluate=evaluate)
    assert trained == (type(trained))(steps=12, best_step=6, best=0.7, softmax="full", stopped_early=False)
    assert len(at) == 5  # before the first step, and every three steps
    assert all(torch.equal(value, at[2][name]) for name, value in model.state_dict().items())
    assert not torch.equal(model.head.rows, at[4]["head.rows"])
    assert checkpoint.best_step(tmp_path) == 6
    dev = [(row["step"], row["dev_mrr10"]) for row in log.read(tmp_path) if "dev_mrr10" in row]
    assert dev == [(0, 0.1), (3, 0.3), (6, 0.7), (9, 0.2), (12, 0.7)]


def test_an_untrained_model_may_be_the_best(made: TrainingSetup, tmp_path: Path) -> None:
    model, trained = run(made, tmp_path, options(steps=6), evaluate=scripted(0.9, 0.1))
    assert (trained.best_step, trained.best) == (0, 0.9)
    untrained = dict(made.model().named_parameters())
    shift = dict(model.named_parameters())["head.bias"] - untrained["head.bias"]
    assert torch.allclose(shift, shift.mean(), atol=1e-5)  # the mean log Z is taken off, the same for all tokens
    assert all(torch.equal(a, untrained[name]) for name, a in model.named_parameters() if name != "head.bias")


def test_a_run_begins_with_log_z_near_zero(made: TrainingSetup, tmp_path: Path) -> None:
    run(made, tmp_path, options(steps=1, l3=1.0), evaluate=scripted(0.5))
    first = next(row for row in log.read(tmp_path) if "log_z" in row)
    untrained = made.model()
    assert made.data.vectors is not None
    x = untrained.from_vectors(torch.from_numpy(made.data.vectors[:32].astype(np.float32)))
    before = untrained.head.log_z(x[:, 1:].flatten(0, 1)).abs().mean()
    assert first["log_z"] < 0.5 * float(before)


def test_early_stopping(made: TrainingSetup, tmp_path: Path) -> None:
    _, trained = run(made, tmp_path, options(steps=60, patience=2), evaluate=scripted(0.1, 0.5, 0.4, 0.6, 0.3, 0.6))
    assert trained.stopped_early
    assert (trained.steps, trained.best_step) == (15, 9)  # best at the third evaluation; two more, then the end
    _, again = run(made, tmp_path, options(steps=60, patience=2), evaluate=scripted(1.0))
    assert again == trained  # a stopped run does not go on
    _, never = run(made, tmp_path / "never", options(steps=9, patience=0), evaluate=scripted(0.5, 0.1))
    assert (never.steps, never.stopped_early) == (9, False)


def test_early_stopping_of_the_first_stage_starts_the_second(made: TrainingSetup, tmp_path: Path) -> None:
    wish = options(steps=40, patience=1, fine_tune=0.5)
    _, trained = run(made, tmp_path, wish, evaluate=scripted(0.1, 0.5, 0.4, 0.6, 0.2))
    assert trained.steps == 6 + 6  # 0.5 at step 3, worse at 6; then 0.6 at 9 and worse at 12
    assert trained.best_step == 9
    assert trained.stopped_early


def test_a_run_killed_where_the_first_stage_was_stopped(made: TrainingSetup, tmp_path: Path) -> None:
    """It goes on with the second stage from the best weights, not with the first."""
    wish = options(steps=40, patience=1, fine_tune=0.5)
    values = (0.1, 0.5, 0.4, 0.6, 0.2)

    def kill(words: str, done: int, total: int | None) -> None:
        if "all layers" in words:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(made, tmp_path / "a", wish, evaluate=scripted(*values), progress=kill)
    run(made, tmp_path / "a", wish, evaluate=scripted(*values[3:]))
    run(made, tmp_path / "b", wish, evaluate=scripted(*values))
    whole = losses(tmp_path / "b")
    assert [step for step, _ in losses(tmp_path / "a")] == [step for step, _ in whole]
    assert [loss for _, loss in losses(tmp_path / "a")] == pytest.approx([loss for _, loss in whole], abs=1e-6)


@pytest.mark.parametrize("minutes", [0.0, 60.0])
@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({"steps": 1}, 1),
        ({"steps": 3}, 3),
        ({"steps": 7}, 7),
        ({"steps": 7, "fine_tune": 0.3}, 7),
        ({"steps": 3, "fine_tune": 0.1}, 3),
        ({"steps": 3, "fine_tune": 1.0}, 3),
        ({"steps": 0, "epochs": 1}, 4),  # 8 × 3 + 1 docids and 8 train queries: 33 pairs
        ({"steps": 0, "epochs": 2, "batch": 16, "accumulate": 2}, 2),
        ({"steps": 5, "epochs": 3}, 5),
        ({"steps": 50, "epochs": 1, "fine_tune": 0.5}, 4),
    ],
)
def test_limits(made: TrainingSetup, tmp_path: Path, changes: dict[str, Any], steps: int, minutes: float) -> None:
    assert len(made.data.pair_docid) + len(made.data.query_index) == 33
    values = iter(range(100))
    wish = options(minutes=minutes, evaluate_every=0, **changes)
    model, trained = run(made, tmp_path, wish, evaluate=lambda _: float(next(values)))
    assert trained.steps == steps
    assert [step for step, _ in losses(tmp_path)] == list(range(1, steps + 1))
    assert trained.best_step == steps  # each evaluation is better than the last, and the last step has one
    assert not torch.equal(model.head.rows, made.model().head.rows)


def test_a_budget_in_minutes(made: TrainingSetup, tmp_path: Path) -> None:
    started = time.monotonic()
    _, trained = run(
        made, tmp_path, options(steps=0, minutes=0.03, schedule="linear"), progress=lambda *_: time.sleep(0.02)
    )
    seconds = time.monotonic() - started
    assert trained.steps >= 4
    assert 0.5 < seconds < 20  # 1.8 asked for; the machine may be busy
    last = [row for row in log.read(tmp_path) if "rate" in row][-1]
    assert last["rate"] <= 1.5 / (trained.steps - 2)  # the plan was kept: the rate came down to its last step
    step = checkpoint.latest(tmp_path)
    assert step is not None
    assert checkpoint.step_of(step) == trained.steps


def test_no_dev_queries(made: TrainingSetup, tmp_path: Path) -> None:
    _, trained = run(made, tmp_path, options(steps=7))
    assert (trained.steps, trained.best_step) == (7, 7)
    assert math.isnan(trained.best)
    assert checkpoint.latest(tmp_path) == tmp_path / "step-000007"


def test_a_loss_that_explodes(made: TrainingSetup, tmp_path: Path) -> None:
    model = made.model()
    with torch.no_grad():
        model.head.rows[0] = torch.nan
    with pytest.raises(PixnarError, match=r"the loss became nan at step 0: lower the learning rates"):
        run(made, tmp_path, options(), model=model)


def test_full_or_sampled(made: TrainingSetup) -> None:
    model, device = made.model(), torch.device("cpu")

    def choice(**changes: Any) -> str:
        return choose_softmax(model, made.data, options(**changes), device)

    assert choice(minutes=1.0) == "full"
    assert choice(minutes=1e-9) == "sampled"
    assert choice(minutes=0.0, steps=10) == "full"  # no limit of time
    assert choice(minutes=1.0, softmax="sampled") == "sampled"
    assert choice(minutes=1e-9, softmax="full") == "full"


def test_schedule() -> None:
    def by_steps(total: int, warmup: int, kind: str) -> list[float]:
        return [schedule(step, step / total, total, warmup, kind) for step in range(total)]

    falling = [0.5, 1] + [(20 - step) / 18 for step in range(2, 20)]
    assert by_steps(20, 2, "linear") == pytest.approx(falling)
    assert by_steps(40, 4, "constant")[:6] == [0.25, 0.5, 0.75, 1, 1, 1]
    assert by_steps(40, 1000, "constant")[:6] == [0.25, 0.5, 0.75, 1, 1, 1]  # a tenth of the run at most
    assert by_steps(3, 0, "constant") == [1, 1, 1]
    assert all(0 < rate <= 1 for rate in by_steps(5, 50, "linear"))
    assert [schedule(step, 0.2, 0, 50, "linear") for step in (5, 500)] == pytest.approx([0.8 / 0.9] * 2)
    assert schedule(5, 0.01, 0, 50, "linear") == pytest.approx(0.12)


def test_a_large_seed(made: TrainingSetup, tmp_path: Path) -> None:
    run(made, tmp_path, options(steps=1, seed=2**63 - 1))
    assert len(losses(tmp_path)) == 1


def test_half_precision(made: TrainingSetup, tmp_path: Path) -> None:
    run(made, tmp_path / "half", options(steps=3, precision="bf16", fine_tune=0.5), rule=ScoreRule(order="any"))
    run(made, tmp_path / "full", options(steps=3, precision="fp32", fine_tune=0.5), rule=ScoreRule(order="any"))
    for (_, half), (_, full) in zip(losses(tmp_path / "half"), losses(tmp_path / "full"), strict=True):
        assert half == pytest.approx(full, rel=0.05)


def test_pick_device() -> None:
    assert pick_device("cpu").type == "cpu"
    assert str(pick_device("cuda:1")) == "cuda:1"


def test_a_run_without_any_limit(made: TrainingSetup, tmp_path: Path) -> None:
    with pytest.raises(PixnarError, match="would never end"):
        run(made, tmp_path, options(steps=0))
