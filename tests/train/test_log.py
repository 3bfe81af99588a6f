from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from pixnar.base.errors import FileFormatError, MissingExtraError
from pixnar.train.log import TrainingLog, plot, read


def steps(folder: Path) -> list[int]:
    return [row["step"] for row in read(folder)]


def test_rows_are_on_disk_at_once(tmp_path: Path) -> None:
    log = TrainingLog(tmp_path / "run")
    log.write(1, loss=2.5, l1=np.float32(2.0), pairs=256)
    log.write(2, loss=float("nan"))
    first, second = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert list(json.loads(first)) == ["step", "seconds", "loss", "l1", "pairs"]
    assert json.loads(first)["pairs"] == 256
    assert json.loads(second)["loss"] is None
    log.close()


def test_a_resumed_log_forgets_what_came_after(tmp_path: Path) -> None:
    with TrainingLog(tmp_path) as log:
        for step in range(10):
            log.write(step, loss=1.0 / (step + 1))
    before = read(tmp_path)[:6]
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write('{"step": 10, "secon')  # killed in the middle of a row
    assert steps(tmp_path) == list(range(10))
    with TrainingLog(tmp_path, resume=5) as log:
        assert log.seconds >= before[-1]["seconds"]
        log.write(6, loss=0.5)
    assert read(tmp_path)[:6] == before
    assert steps(tmp_path) == [*range(6), 6]
    assert read(tmp_path)[6]["seconds"] >= before[-1]["seconds"]


def test_the_clock_goes_on(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"step": 3, "seconds": 100.0}\n{"step": 4, "seconds": 900.0}\n')
    with TrainingLog(tmp_path, resume=3) as log:
        assert 100 <= log.seconds < 200


def test_a_new_run_begins_a_new_log(tmp_path: Path) -> None:
    for _ in range(2):
        with TrainingLog(tmp_path) as log:
            log.write(0, dev_mrr10=0.3)
    assert steps(tmp_path) == [0]
    with TrainingLog(tmp_path / "none", resume=7) as log:  # nothing to resume from
        log.write(8, loss=1.0)
    assert steps(tmp_path / "none") == [8]


def test_tensorboard(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with TrainingLog(tmp_path, tensorboard=True) as log:
        for step in range(5):
            log.write(step, loss=float(step))
    with TrainingLog(tmp_path, tensorboard=True, resume=2) as log:
        log.write(3, loss=30.0)
    found = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    assert [(event.step, event.value) for event in found.Scalars("loss")] == [(0, 0), (1, 1), (2, 2), (3, 30)]


def test_tensorboard_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"TensorBoard needs.*pixnar\[tensorboard\]"):
        TrainingLog(tmp_path / "run", tensorboard=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("rows", [0, 1, 300])
def test_plot(tmp_path: Path, rows: int) -> None:
    pytest.importorskip("matplotlib")
    with TrainingLog(tmp_path) as log:
        for step in range(1, rows + 1):
            parts = {"l1": 9.0 / step, "l2": 3.0, "l3": 400.0 / step, "log_z": float("nan") if step == 3 else 2.0}
            log.write(step, loss=sum(parts.values()), **parts)
            if step % 100 == 0:
                log.write(step, dev_mrr10=step / 1000)
    plot(tmp_path, tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_to_plot(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="give the folder of a training run"):
        plot(tmp_path, tmp_path / "run.png")
