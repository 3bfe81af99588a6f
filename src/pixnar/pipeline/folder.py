"""Where an index is built: a folder that is taken once, resumed by the same recipe, and swapped in when it is whole."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

from pixnar.base.errors import PixnarError
from pixnar.base.storage import atomic_write
from pixnar.corpus import Corpus, state_of
from pixnar.index.files import DOCIDS
from pixnar.index.manifest import NAME, UNFINISHED
from pixnar.recipe import Recipe, from_dict, to_dict


def claim(folder: Path, corpus: Corpus, recipe: Recipe, *, overwrite: bool) -> Path:
    """Take a folder for a new index, or go on with the one begun there; where to build.

    With `overwrite` a finished index stays and answers until the new one, built beside it, is whole.
    """
    if folder.exists() and not folder.is_dir():
        raise PixnarError(f"{folder} is a file: choose another output")
    finished = (folder / NAME).exists()
    if finished and not overwrite:
        raise PixnarError(f"{folder} holds a finished index: choose another output, or give --overwrite to replace it")
    place = beside(folder) if finished else folder
    if (beside(folder) / NAME).exists() and not finished:
        raise PixnarError(f"{beside(folder)} is whole, but was not put in place: rename it to {folder.name}")
    if finished and (place / NAME).exists():
        shutil.rmtree(place)  # whole, but never put in place; the one that was there is still there
    begun = {"corpus": state_of(corpus), "recipe": to_dict(recipe)}
    note = place / "work" / "fit.json"
    if not note.exists() and any(path.is_file() and path.suffix != ".part" for path in place.rglob("*")):
        lost = " and would be lost" if overwrite else ""
        raise PixnarError(f"{place} is not empty, no index was begun there{lost}: choose another output")
    if note.exists() and _noted(note) != begun:
        if not overwrite:
            raise PixnarError(f"{place} was begun with another corpus or recipe: use those again, or give --overwrite")
        shutil.rmtree(place)
    _sweep(place)
    note.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(note) as file:
        file.write(json.dumps(begun).encode())
    return place


def forget(place: Path) -> None:
    """Remove a folder in which nothing was made yet: what was wrong can be put right, and the fit begun anew."""
    note = place / "work" / "fit.json"
    if [path for path in place.rglob("*") if path.is_file()] == [note]:
        with contextlib.suppress(OSError):  # whatever else is there, empty folders or links, is somebody's
            note.unlink()
            note.parent.rmdir()
            place.rmdir()


def _sweep(place: Path) -> None:
    """Remove what a killed fit was writing; the docid table looks after its own."""
    for path in [path for path in place.rglob(f"*{UNFINISHED}") if DOCIDS not in path.relative_to(place).parts[:1]]:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def beside(folder: Path) -> Path:
    """Where the successor of a finished index is built."""
    return folder.with_name(f"{folder.name}.next")


def _noted(path: Path) -> Any:
    try:
        noted = json.loads(path.read_bytes())
        # A recipe that was written before some setting existed has its default.
        return noted | {"recipe": to_dict(from_dict(noted["recipe"], str(path)))}
    except (ValueError, KeyError, TypeError, PixnarError):
        return None
