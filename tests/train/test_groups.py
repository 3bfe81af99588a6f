"""Training over 1, 2 and 4 processes: the same losses, the same weights, and no process with all rows of the head."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from pixnar.base.errors import PixnarError
from pixnar.model.process_group import SINGLE, ProcessGroup
from pixnar.train import checkpoint
from tests.helpers.process_groups import CHAIN, CHAINED, RUNS, STEPS

ROOT = Path(__file__).parents[2]
NEAR, VERY_NEAR = 1e-4, 2e-6
LOSSES = ("l1", "l2", "l3", "ranking", "loss", "log_z")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("groups")


@pytest.fixture(scope="module")
def found(home: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.helpers.process_groups", str(home)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads((home / "found.json").read_text())
    return told


def near(rows: list[dict[str, Any]], others: list[dict[str, Any]], name: str) -> None:
    allowed = VERY_NEAR if name.startswith("composed") else NEAR
    assert [row["step"] for row in rows] == [row["step"] for row in others]
    for row, other in zip(rows, others, strict=True):
        for part in LOSSES:
            if part in row:
                assert other[part] == pytest.approx(row[part], rel=allowed, abs=allowed), (row["step"], part)


@pytest.mark.parametrize("size", ["2", "4"])
@pytest.mark.parametrize("name", list(RUNS))
def test_the_same_losses_and_weights_as_one_process(found: dict[str, Any], home: Path, name: str, size: str) -> None:
    one, many = found["runs"][name]["1"], found["runs"][name][size]
    assert all("log" in told for told in one + many), str(many)[-2000:]
    near(one[0]["log"], many[0]["log"], name)
    steps = [row for row in one[0]["log"] if "loss" in row]
    assert len(steps) == RUNS[name]["steps"]
    assert any(row["ranking"] > 0 for row in steps)
    assert [told["best"] for told in many] == [one[0]["best"]] * int(size)
    mine, theirs = (load_file(home / name / number / "model" / "model.safetensors") for number in ("1", size))
    assert mine.keys() == theirs.keys()
    for key, value in mine.items():
        assert theirs[key] == pytest.approx(value, abs=2e-4), key  # moved by 1e-3 a step
    assert not (home / name / size / ".dev-rows").exists()


@pytest.mark.parametrize("size", ["2", "4"])
@pytest.mark.parametrize("name", list(STEPS))
def test_the_same_gradients_as_one_process(found: dict[str, Any], name: str, size: str) -> None:
    """Losses alone would not show a wrong factor: Adam takes steps of the same size whatever it is."""
    one, many = found["gradients"][name]["1"][0], found["gradients"][name][size]
    assert all("rows" in told for told in [one, *many]), str(many)[-2000:]
    for part in ("rows", "bias"):
        whole = np.concatenate([np.array(told[part]) for told in many])
        assert np.abs(one[part]).max() > 0
        assert whole == pytest.approx(np.array(one[part]), rel=NEAR, abs=NEAR * np.abs(one[part]).max())
    for told in many:
        assert told["scale"] == pytest.approx(one["scale"], rel=NEAR)
        assert bool(one["scale"]) != name.startswith("composed")
        assert len(told["body"]) == len(one["body"]) > 0
        for theirs, mine in zip(told["body"], one["body"], strict=True):
            assert theirs == pytest.approx(mine, rel=NEAR, abs=1e-6 + NEAR * np.abs(mine).max())


def test_the_recall_of_a_head_in_shards(found: dict[str, Any]) -> None:
    for size in ("2", "4"):
        told = [found["runs"]["full"][number][0]["log"][1]["recall"] for number in ("1", size)]
        assert told[0] == pytest.approx(told[1], abs=1e-6)
        assert 0 < told[0] < 1


@pytest.mark.parametrize("size", ["2", "4"])
@pytest.mark.parametrize("name", list(RUNS))
def test_each_process_holds_its_rows_and_their_state_only(found: dict[str, Any], name: str, size: str) -> None:
    told = found["runs"][name][size]
    total = told[0]["total"]
    assert sum(one["rows"] for one in told) == total
    for one in told:
        assert one["rows"] <= -(-total // int(size))
        assert {shape[0] for shape in one["shapes"]} == {
            one["rows"]
        }  # rows, bias, and what the optimizer keeps of both


@pytest.mark.parametrize("kind", ["full", "sampled"])
def test_no_operation_ever_makes_all_rows(found: dict[str, Any], kind: str) -> None:
    one = found["widest"]["1"][0][kind]
    total = 20_001
    assert one["rows"] == total  # what one process needs, the look at operations sees
    for size in ("2", "4"):
        for told in found["widest"][size]:
            assert told[kind]["rows"] <= -(-total // int(size))
            assert told[kind]["drawn"] < total
            assert told[kind]["after"] == one["after"]  # what is drawn later is drawn as ever
            assert told[kind]["losses"] == pytest.approx(one["losses"], rel=NEAR)


@pytest.mark.parametrize("kind", ["full", "sampled"])
def test_stage_two_learns_the_same_vectors(found: dict[str, Any], kind: str) -> None:
    one = found["shortlists"]["1"][0][kind]
    for size in ("2", "4"):
        for told in found["shortlists"][size]:
            assert told[kind]["loss"] == pytest.approx(one["loss"], rel=NEAR)
            said = [[words.rsplit(" ", 1) for words in run[kind]["said"]] for run in (told, {kind: one})]
            assert [words for words, _ in said[0]] == [words for words, _ in said[1]]
            values = [[float(value) for _, value in run] for run in said]
            assert values[0] == pytest.approx(values[1], rel=NEAR)
            for row, other in zip(one["c"], told[kind]["c"], strict=True):
                assert other == pytest.approx(row, rel=NEAR, abs=NEAR)


def test_rows_that_processes_solve_together(found: dict[str, Any]) -> None:
    """The same as one process solves, though one of two was killed on the way; once solved, they are only read."""
    (one,), killed, resumed, read, again = found["solving"]
    assert killed[-1] == {"signal": signal.SIGKILL}
    assert resumed[-1]["rounds"][0] == 5  # the fourth had been saved
    assert [told["rounds"] for told in read] == [[], []]
    for told in (resumed, again):  # the slowest column decides, whoever has it
        assert max(part["rounds"][-1] for part in told) == one["rounds"][-1]
    for told in (resumed, read, again):
        assert np.vstack([part["rows"] for part in told]) == pytest.approx(np.array(one["rows"]), abs=1e-6)
        for part in told:
            assert np.array(part["pieces"]) == pytest.approx(np.array(one["pieces"]), abs=1e-6)
    assert [part["rows"] for part in resumed] == [part["rows"] for part in again]


@pytest.mark.parametrize("name", list(CHAINED))
def test_killed_and_resumed_with_another_number_of_processes(found: dict[str, Any], name: str) -> None:
    for (size, step), ends in zip(CHAIN, found["chain"][name], strict=True):
        assert len(ends) == size
        if not step:
            continue
        assert ends[-1] == {"signal": signal.SIGKILL}
        told = [end["error"] for end in ends[:-1] if "error" in end]
        assert len(told) == min(1, size - 1), ends  # one process speaks, the others go silently
        assert all("start again with the same arguments" in words for words in told)
        assert all(end.keys() <= {"error", "silent", "signal"} for end in ends)
    near(found["straight"][name][0]["log"], found["chain"][name][-1][0]["log"], name)
    assert found["straight"][name][0]["log"][-1]["step"] == 9


def test_checkpoints_in_shards(found: dict[str, Any], home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Read whole, or any rows of them; one with a damaged shard is passed over."""
    folder = home / "chain" / "sampled" / "run"
    newest = checkpoint.latest(folder)
    assert newest is not None
    names = ["rows-00000-of-00002.safetensors", "rows-00001-of-00002.safetensors", "state.json", "tensors.safetensors"]
    assert sorted(path.name for path in newest.iterdir()) == names
    whole, state = checkpoint.load(newest)
    assert sum(state["done"]) == 9
    total = found["chain"]["sampled"][-1][0]["total"]
    assert whole["model.head.rows"].shape == (total, 32)
    assert whole["optimizer.head.state.0.square"].shape == (total,)
    some, _ = checkpoint.load(newest, rows=checkpoint.RowShard(100, 400, ProcessGroup(1, 3), lambda _: True))
    assert some.keys() == whole.keys()
    assert torch.equal(some["model.head.rows"], whole["model.head.rows"][100:400])
    assert torch.equal(some["optimizer.head.state.1.steps"], whole["optimizer.head.state.1.steps"][100:400])
    assert torch.equal(some["model.slots.log_scale"], whole["model.slots.log_scale"])
    for path, damage in ((newest / names[1], -8), (newest / names[0], 0)):
        kept = path.read_bytes()
        path.write_bytes(kept[:damage] if damage else kept[:-1] + bytes([kept[-1] ^ 1]))
        earlier = checkpoint.latest(folder)
        assert earlier is not None
        assert checkpoint.step_of(earlier) < 9
        assert f"{path.name} " in caplog.text
        path.write_bytes(kept)
    assert checkpoint.latest(folder) == newest


def test_killed_while_saving(found: dict[str, Any]) -> None:
    steps = found["saved"]
    assert steps == sorted(steps)
    assert steps[-1] > 0  # or they were killed before they did anything


def test_a_fault_of_all_is_told_once(found: dict[str, Any]) -> None:
    ends = found["failing"]
    assert sorted(json.dumps(end) for end in ends) == [
        '{"error": "all of them fail"}',
        '{"silent": true}',
        '{"silent": true}',
    ]


def test_a_single_process_is_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert ProcessGroup.join("mps") is SINGLE
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    assert ProcessGroup.join("mps") is SINGLE  # whoever set it, it was not torchrun
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(PixnarError, match=r"train\.device mps with 2 processes: they can share cpu or cuda"):
        ProcessGroup.join("mps")
    with pytest.raises(PixnarError, match="3 rows cannot be shared by 4 processes"):
        ProcessGroup(1, 4).rows(3)


def test_who_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("pixnar.model.process_group._MEETING", timedelta(seconds=1))
    with pytest.raises(PixnarError, match=r"process 0 of 2 met not all of the others within 0:00:01: see what ended"):
        ProcessGroup.join("cpu")


def test_processes_that_share_work_share_a_kind_of_device() -> None:
    assert ProcessGroup(0, 2).device(torch.device("mps")) == torch.device("cpu")
    assert ProcessGroup().device(torch.device("mps")) == torch.device("mps")


GONE = """
import sys, weakref
import torch
import torch.distributed as dist
from pixnar.model.process_group import ProcessGroup

group = ProcessGroup.join("cpu")
default = weakref.ref(dist.distributed_c10d._get_default_group())
with group.together():
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight])
    weight.sum().backward()
    group.add_up([weight.grad])
    optimizer.step()
sys.exit(default() is not None)
"""


def test_nothing_of_the_group_is_left_at_the_end(tmp_path: Path) -> None:
    """Threads of a group that lives on now and then abort the interpreter when it ends, after all is done."""
    (tmp_path / "gone.py").write_text(GONE)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(tmp_path / "gone.py")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *launch], env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
