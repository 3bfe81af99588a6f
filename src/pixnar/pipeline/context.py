"""Fit context: the settings, folders and report that all stages of a fit share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pixnar.base.progress import Progress
from pixnar.corpus import Corpus
from pixnar.index.files import MODEL
from pixnar.model.process_group import ProcessGroup
from pixnar.recipe import Recipe


@dataclass
class Report:
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
    report: Report = field(default_factory=Report)
    named: bool = False  # whether the docids are made of the text

    @property
    def work(self) -> Path:
        """Files that only the fit needs."""
        return self.folder / "work"

    @property
    def model_path(self) -> Path:
        """Where the trained model goes: into the index, or only into the work folder."""
        return (self.folder if self.recipe.serve.keep_model else self.work) / MODEL
