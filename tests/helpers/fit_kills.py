"""A fit that is killed again and again, beside one that is not. Run by test_fit."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from pixnar.pipeline import fit
from pixnar.recipe import Recipe, override
from pixnar.train import log
from tests.helpers.training_runs import killed


def main(folder: Path, wishes: list[list[str]], moments: list[str]) -> None:
    """Fit the corpus in a folder twice for each recipe: in one go, and with kills when some files are there."""
    torch.set_num_threads(1)
    for i, wish in enumerate(wishes):
        recipe = override(Recipe(), wish)
        for moment in moments:
            killed(
                lambda to=folder / f"broken{i}", recipe=recipe: _fit(folder, to, recipe, slow=True),  # type: ignore[misc]
                _there(folder / f"broken{i}", moment),
            )
            assert not (folder / f"broken{i}" / "manifest.json").exists()
        _fit(folder, folder / f"broken{i}", recipe)
        _fit(folder, folder / f"whole{i}", recipe)


def _fit(folder: Path, to: Path, recipe: Recipe, *, slow: bool = False) -> None:
    def wait(_: str, __: int, ___: int | None) -> None:
        time.sleep(0.01)  # so that it can be killed where we want

    cache = folder / f"cache-{to.name}"
    fit(folder / "corpus", to, recipe, cache=cache, threads=1, progress=wait if slow else None)


def _there(folder: Path, moment: str) -> Callable[[], bool]:
    """Whether a file is there, and if it is a log, whether it has so many rows."""
    name, _, rows = moment.partition(":")
    path = folder / name
    return (lambda: path.exists() and len(log.read(path.parent)) >= int(rows)) if rows else path.exists


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3]))
