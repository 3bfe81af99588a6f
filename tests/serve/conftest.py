"""One small index that all tests of this folder serve, and a server in a process of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pixnar.benchmarks.serve_process import ServeProcess

from pixnar.index import Index
from pixnar.pipeline import fit
from pixnar.recipe import Recipe, override
from tests.helpers.fit_corpora import WORDS, settings, write_small
from tests.helpers.tiny_model import save_encoder

KEY = "a key for the tests"


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two indexes of the same kind: `index`, and `other`, whose documents are other ones."""
    folder = tmp_path_factory.mktemp("serve")
    encoder = save_encoder(folder / "encoder", texts=WORDS)
    for name, seed, documents in (("index", 0, 40), ("other", 7, 20)):
        write_small(folder / f"{name}.corpus", documents, 3, seed=seed)
        wish = settings(encoder, train__steps=2, scoring__tune=False)
        fit(folder / f"{name}.corpus", folder / name, override(Recipe(), wish), cache=folder / "cache", threads=1)
    return folder


@pytest.fixture(scope="session")
def library(home: Path) -> Index:
    return Index.load(home / "index", threads=1)


@pytest.fixture(scope="session")
def server(home: Path) -> Iterator[ServeProcess]:
    """A server whose index nobody changes."""
    with ServeProcess(home / "index", "--wait-ms", "5000") as running:
        yield running


@pytest.fixture
def copy(home: Path, tmp_path: Path) -> Path:
    """An index that a test may change."""
    shutil.copytree(home / "index", tmp_path / "index")
    return tmp_path / "index"
