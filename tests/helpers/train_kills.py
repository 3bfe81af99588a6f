"""A child saves checkpoints as fast as it can and is killed; what it leaves must load. Run by test_checkpoint."""

from __future__ import annotations

import itertools
import json
import logging
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from pixnar.train import checkpoint


def save_for_ever(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    newest = checkpoint.latest(folder)
    for step in itertools.count(0 if newest is None else checkpoint.step_of(newest)):  # the last one is written again
        tensors = {"rows": torch.full((300, 70), float(step)), "step": torch.tensor(step)}
        checkpoint.save(folder, step, tensors, {"step": step, "words": ["ä"] * (step % 50)}, keep=1 + step % 2)
        if chance.random() < 0.3:
            checkpoint.mark_best(folder, step)


def check(path: Path) -> int:
    tensors, state = checkpoint.load(path)
    step = checkpoint.step_of(path)
    assert state == {"step": step, "words": ["ä"] * (step % 50)}, (path, state)
    assert torch.equal(tensors["rows"], torch.full((300, 70), float(step)))
    assert int(tensors["step"]) == step
    return step


def main(folder: Path, kills: int) -> None:
    warnings: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("pixnar").addHandler(handler)
    chance, last = random.Random(kills), 0
    for kill in range(kills):
        child = os.fork()
        if child == 0:
            save_for_ever(folder, kill)
        while kill == 0 and checkpoint.latest(folder) is None:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 0.2))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the child ended by itself"
        newest, best = checkpoint.latest(folder), checkpoint.best(folder)
        assert newest is not None
        assert check(newest) >= last
        last = checkpoint.step_of(newest)
        assert best is None or check(best) <= last
    print(json.dumps({"steps": last, "best": checkpoint.best_step(folder), "warnings": warnings}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
