"""One small index for all tests of this folder; its model knows nothing, its table everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from pixnar.index import Index
from pixnar.pipeline import fit
from pixnar.recipe import Recipe, override
from tests.helpers.fit_corpora import WORDS, settings, write_small
from tests.helpers.tiny_model import save_encoder


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("integrations")
    write_small(home / "corpus", 20, 3)
    encoder = save_encoder(home / "encoder", texts=WORDS)
    wish = settings(encoder, model__head="random", train__steps=1, scoring__tune=False, scoring__copy=0.0)
    fit(home / "corpus", home / "index", override(Recipe(), wish), cache=home / "cache", threads=1)
    return home / "index"


@pytest.fixture(scope="session")
def index(folder: Path) -> Index:
    return Index.load(folder)
