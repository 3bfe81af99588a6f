"""The folder of an index that is being built: claimed for one corpus and recipe, and resumed with the same."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from pixnar.base.errors import PixnarError
from pixnar.base.storage import UNFINISHED, write_json
from pixnar.base.workdir import may_resume, read_note
from pixnar.corpus import Corpus, state_of
from pixnar.index.files import DOCIDS
from pixnar.index.manifest import NAME
from pixnar.recipe import Recipe, from_dict, to_dict


def claim(folder: Path, corpus: Corpus, recipe: Recipe, *, overwrite: bool) -> Path:
    """Claim a folder for a new index or resume the one begun there; returns the folder to build in.

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
    settings = {"corpus": state_of(corpus), "recipe": to_dict(recipe)}
    note = place / "work" / "fit.json"
    if not note.exists() and any(path.is_file() and path.suffix != ".part" for path in place.rglob("*")):
        lost = " and would be lost" if overwrite else ""
        raise PixnarError(f"{place} is not empty, no index was begun there{lost}: choose another output")
    if note.exists() and not may_resume(place, _noted(note), settings, overwrite=overwrite):
        shutil.rmtree(place)
    _sweep(place)
    note.parent.mkdir(parents=True, exist_ok=True)
    write_json(note, settings)
    return place


def forget(place: Path) -> None:
    """Remove a folder in which nothing was made yet, so that a corrected fit can claim it."""
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


def _noted(note: Path) -> dict[str, object] | None:
    """The settings of a fit that was begun; a recipe from before some setting existed has its default."""
    try:
        settings = dict(read_note(note))
        return settings | {"recipe": to_dict(from_dict(settings["recipe"], str(note)))}
    except (ValueError, KeyError, TypeError, PixnarError):
        return None
