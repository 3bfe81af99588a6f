"""Fit context: the settings, folders and report that all stages share, and the index folder that is being built."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pixnar.base.errors import PixnarError
from pixnar.base.progress import Progress
from pixnar.base.storage import UNFINISHED, write_json
from pixnar.base.workdir import may_resume, read_note
from pixnar.corpus import Corpus, state_of
from pixnar.index.files import DOCIDS, MODEL
from pixnar.index.manifest import NAME
from pixnar.model.nar import Nar
from pixnar.model.process_group import ProcessGroup
from pixnar.recipe import Recipe, from_dict, to_dict
from pixnar.scoring import ScoreRule

Floats = NDArray[np.float32]


@dataclass
class FitReport:
    """What a fit measured: facts, and dev figures by name."""

    facts: dict[str, Any] = field(default_factory=dict)
    dev: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass
class FitContext:
    """What a stage needs to know of the fit it belongs to."""

    corpus: Corpus
    folder: Path  # the index that is being built
    recipe: Recipe
    cache: Path  # where vectors of texts are kept between fits
    threads: int
    progress: Progress | None
    say: Callable[[str], None]
    world: ProcessGroup
    report: FitReport = field(default_factory=FitReport)
    named: bool = False  # whether the docids are made of the text

    @property
    def work(self) -> Path:
        """Files that only the fit needs."""
        return self.folder / "work"

    @property
    def model_path(self) -> Path:
        """Where the trained model goes: into the index, or only into the work folder."""
        return (self.folder if self.recipe.serve.keep_model else self.work) / MODEL


def start_rule(recipe: Recipe) -> ScoreRule:
    """The rule a recipe starts from; settings that dev is to choose start at their best guess."""
    settings = recipe.scoring
    return ScoreRule(
        score=settings.score,  # type: ignore[arg-type]
        prior_weight=settings.prior_weight,
        copy=settings.copy,
        floor=settings.floor,  # type: ignore[arg-type]
        order="bag" if settings.order == "auto" else settings.order,  # type: ignore[arg-type]
        ends=settings.ends,
        length_norm=0.0 if settings.score == "composed" else settings.length_norm,
        aggregate=settings.aggregate,  # type: ignore[arg-type]
        scale=settings.scale,
        normalize=settings.normalize,
    )


@torch.inference_mode()
def x_of(model: Nar, texts: Sequence[str], pooled: Floats | None) -> Floats:
    """X [Q, s + 1, d] of normalised texts, from their pooled vectors where those are given."""
    if pooled is None:
        return model.slot_vectors(texts)
    return model.from_vectors(torch.from_numpy(pooled).to(model.device)).float().cpu().numpy()


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
