from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.train import checkpoint
from pixnar.train.checkpoint import best, flatten, latest, load, mark_best, restore, save
from pixnar.train.optimizers import RowAdam

ROOT = Path(__file__).parents[2]


def save_step(folder: Path, step: int, keep: int = 2) -> Path:
    return save(folder, step, {"x": torch.full((3,), float(step))}, {"step": step}, keep=keep)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_round_trip(tmp_path: Path) -> None:
    table = torch.arange(12.0).view(3, 4)
    tensors = {
        "rows": table,
        "part": table[1:],  # shares memory with the first
        "turned": table.t(),
        "half": table.bfloat16(),
        "steps": torch.tensor([1, 2], dtype=torch.int16),
        "none": torch.zeros(0, 5),
        "one": torch.tensor(7),
        "parameter": nn.Parameter(torch.ones(2)),
    }
    state = {"seed": 3, "words": "naïve", "nested": {"list": [1, 2.5, None, True]}, "rate": 1e-5}
    path = save(tmp_path / "new" / "folder", 12, tensors, state)
    assert path.name == "step-000012"
    assert names(path) == ["state.json", "tensors.safetensors"]
    found, said = load(path)
    assert said == state
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def test_old_ones_go_and_the_best_stays(tmp_path: Path) -> None:
    for step in (10, 20, 30, 40, 1_000_050):
        save_step(tmp_path, step)
        if step == 10:
            mark_best(tmp_path, 10)
    assert names(tmp_path) == ["best.json", "step-000010", "step-000040", "step-1000050"]
    assert latest(tmp_path) == tmp_path / "step-1000050"
    assert best(tmp_path) == tmp_path / "step-000010"
    mark_best(tmp_path, 40)
    save_step(tmp_path, 1_000_060, keep=1)
    assert names(tmp_path) == ["best.json", "step-000040", "step-1000060"]


def test_nothing_there(tmp_path: Path) -> None:
    assert latest(tmp_path / "no") is None
    assert best(tmp_path) is None
    with pytest.raises(PixnarError, match="no checkpoint of step 3"):
        mark_best(tmp_path, 3)


def test_a_step_may_be_saved_again(tmp_path: Path) -> None:
    save_step(tmp_path, 5)
    save(tmp_path, 5, {"x": torch.zeros(2)}, {"again": True})
    assert names(tmp_path) == ["step-000005"]
    assert load(tmp_path / "step-000005")[1] == {"again": True}


def test_going_back(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save_step(tmp_path, step, keep=5)
    mark_best(tmp_path, 20)
    save_step(tmp_path, 15, keep=1)  # an earlier step never deletes a later one
    assert names(tmp_path) == ["best.json", "step-000015", "step-000020", "step-000030"]


def damage_tensors(path: Path) -> None:
    content = bytearray((path / "tensors.safetensors").read_bytes())
    content[-1] ^= 1
    (path / "tensors.safetensors").write_bytes(content)


def damage_state(path: Path) -> None:
    text = (path / "state.json").read_text()
    (path / "state.json").write_text(text.replace('"step": 30\n', '"step": 31\n'))


def cut_tensors(path: Path) -> None:
    os.truncate(path / "tensors.safetensors", 20)


def cut_state(path: Path) -> None:
    os.truncate(path / "state.json", 20)


def drop_state(path: Path) -> None:
    (path / "state.json").unlink()


def foreign_state(path: Path) -> None:
    (path / "state.json").write_text("[1, 2]")


@pytest.mark.parametrize(
    "damage",
    [damage_tensors, damage_state, cut_tensors, cut_state, drop_state, foreign_state],
    ids=lambda f: f.__name__,
)
def test_a_damaged_one_is_skipped(tmp_path: Path, damage: Any, caplog: pytest.LogCaptureFixture) -> None:
    for step in (10, 20, 30):
        save_step(tmp_path, step, keep=3)
    mark_best(tmp_path, 30)
    damage(tmp_path / "step-000030")
    with caplog.at_level(logging.WARNING):
        assert latest(tmp_path) == tmp_path / "step-000020"
    assert len(caplog.messages) == 1
    assert "step-000030 is damaged or incomplete" in caplog.text
    assert best(tmp_path) == tmp_path / "step-000020"
    with pytest.raises(FileFormatError, match="step-000030 is damaged"):
        load(tmp_path / "step-000030")
    save_step(tmp_path, 30)  # a run that goes on from 20 comes by again
    assert latest(tmp_path) == tmp_path / "step-000030"


def test_a_damaged_one_does_not_count_as_kept(tmp_path: Path) -> None:
    for step in (10, 20):
        save_step(tmp_path, step)
    cut_state(tmp_path / "step-000020")
    save_step(tmp_path, 30)
    assert "step-000010" in names(tmp_path)


def test_a_damaged_mark(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save_step(tmp_path, 10)
    (tmp_path / "best.json").write_text("{")
    assert best(tmp_path) is None
    assert "best.json is damaged" in caplog.text


def test_a_newer_format_is_not_taken_for_damage(tmp_path: Path) -> None:
    save_step(tmp_path, 10)
    path = save_step(tmp_path, 20) / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 3}))
    with pytest.raises(FileFormatError, match="format 3, this release reads up to 2: upgrade pixnar"):
        latest(tmp_path)


def test_left_overs_are_cleared_and_what_was_being_replaced_is_found(tmp_path: Path) -> None:
    save_step(tmp_path, 10)
    (tmp_path / ".step-000020.part").mkdir()
    (tmp_path / ".step-000020.part" / "tensors.safetensors").write_text("half")
    (tmp_path / "step-000010").rename(tmp_path / ".step-000010.old")
    assert checkpoint.step_of(latest(tmp_path) or "") == 10
    save_step(tmp_path, 20)
    assert names(tmp_path) == ["step-000010", "step-000020"]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PixnarError, match="cannot write the checkpoint"):
        save_step(tmp_path / "file", 1)
    with pytest.raises(PixnarError, match="not the folder of a checkpoint"):
        checkpoint.step_of(tmp_path)


def test_a_state_that_json_cannot_say_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        save(tmp_path, 1, {}, {"x": object()})
    assert latest(tmp_path) is None
    save_step(tmp_path, 2)
    assert names(tmp_path) == ["step-000002"]


def test_killed_while_saving(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.helpers.train_kills", str(tmp_path), "12"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["warnings"] == []  # a kill leaves no damage that would have to be skipped
    assert found["steps"] > 3  # or the children were killed before they did anything


def make(kind: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(4, 6)
    if kind == "adamw":
        return model, torch.optim.AdamW(model.parameters(), lr=0.1)
    momentum = 0.9 if kind == "rows with momentum" else 0.0
    groups = [{"params": [model.weight]}, {"params": [model.bias], "lr": 0.01}]
    return model, RowAdam(groups, lr=0.1, beta1=momentum)


def go(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("kind", ["adamw", "rows", "rows with momentum"])
def test_a_resumed_optimizer_goes_on_as_if_nothing_had_been(kind: str, tmp_path: Path) -> None:
    model, optimizer = make(kind)
    go(model, optimizer, range(5))
    tensors, content = flatten(optimizer.state_dict(), "optimizer")
    assert all(name.startswith("optimizer.state.") for name in tensors)
    weights = {f"model.{name}": value for name, value in model.state_dict().items()}
    path = save(tmp_path, 5, weights | tensors, {"optimizer": content})
    go(model, optimizer, range(5, 10))

    again, fresh = make(kind)
    found, state = load(path)
    again.load_state_dict({name.removeprefix("model."): found[name] for name in weights})
    fresh.load_state_dict(restore(found, state["optimizer"]))
    go(again, fresh, range(5, 10))
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


def test_flatten_takes_all_that_a_state_dict_may_hold() -> None:
    state = {"a": (1, [2.5, None]), "$odd": True, 3: {"x": torch.ones(2)}, "empty": {}, "words": "ä"}
    tensors, content = flatten(state)
    back = restore(tensors, json.loads(json.dumps(content)))
    assert torch.equal(back[3].pop("x"), torch.ones(2))
    assert back == {"a": (1, [2.5, None]), "$odd": True, 3: {}, "empty": {}, "words": "ä"}
    with pytest.raises(TypeError, match=r"deep\.er is a set"):
        flatten({"deep": {"er": {1, 2}}})
    with pytest.raises(FileFormatError, match=r"tensor '3\.x' that is not there"):
        restore({}, content)
