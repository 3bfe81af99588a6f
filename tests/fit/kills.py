"""A fit that is killed again and again, beside one that is not. Run by test_fit."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from pixnar.fit import fit
from pixnar.recipe import Recipe, override
from pixnar.train import log
from tests.train.runs import killed


def main(folder: Path, settings: list[str], moments: list[str]) -> None:
    """Fit the corpus in a folder twice: to `whole` in one go, to `broken` with kills when some files are there."""
    torch.set_num_threads(1)
    recipe = override(Recipe(), settings)
    broken = folder / "broken"

    def slow(_: str, __: int, ___: int | None) -> None:
        time.sleep(0.01)  # so that it can be killed where we want

    def again() -> object:
        return fit(folder / "corpus", broken, recipe, cache=folder / "cache-broken", threads=1, progress=slow)

    def there(moment: str) -> Callable[[], bool]:
        name, _, step = moment.partition(":")
        if not step:
            return (broken / name).exists
        return lambda: (broken / name).exists() and len(log.read((broken / name).parent)) >= int(step)

    for moment in moments:
        killed(again, there(moment))
        assert not (broken / "manifest.json").exists()
    again()
    fit(folder / "corpus", folder / "whole", recipe, cache=folder / "cache-whole", threads=1)
    print(json.dumps("done"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3]))
