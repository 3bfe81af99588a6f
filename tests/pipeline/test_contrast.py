"""The encoder is fine-tuned by contrast before everything else, once, and is the one that is served."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pixnar.base.progress import Progress
from pixnar.corpus import open_corpus
from pixnar.evaluation.queries import read_queries
from pixnar.index import Index
from pixnar.model.encoder import Encoder
from pixnar.pipeline import fit
from pixnar.pipeline.model_stage import contrast_steps, tune_encoder
from pixnar.recipe import Recipe, override
from pixnar.train.data import read_inputs
from tests.helpers.fit_corpora import WORDS, settings, write_small
from tests.helpers.tiny_model import save_encoder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    write_small(folder / "corpus", 30, 4)
    save_encoder(folder / "encoder", texts=[" ".join(WORDS)])
    return folder


def nearness(encoder: Encoder, folder: Path) -> float:
    """The mean similarity of the docids of a document, less that of docids of two documents."""
    names: dict[str, list[str]] = {}
    for row in open_corpus(folder).docids():
        names.setdefault(row.doc_id, []).append(row.docid)
    vectors = [encoder.embed(texts) for texts in names.values()]
    inside = [float((v @ v.T)[np.triu_indices(len(v), 1)].mean()) for v in vectors if len(v) > 1]
    across = [float((a @ b.T).mean()) for a, b in pairwise(vectors)]
    return float(np.mean(inside) - np.mean(across))


def test_docids_of_a_document_come_nearer(home: Path, tmp_path: Path) -> None:
    encoder, corpus = Encoder.load(home / "encoder"), open_corpus(home / "corpus")
    before = nearness(encoder, home / "corpus")
    inputs = read_inputs(corpus)
    tune_encoder(encoder, inputs, 60, tmp_path / "tuned")
    after = nearness(Encoder.load(tmp_path / "tuned"), home / "corpus")
    assert after > 1.05 * before, (before, after)
    state = (tmp_path / "tuned" / "model.safetensors").stat().st_mtime_ns
    tune_encoder(encoder, inputs, 60, tmp_path / "tuned")
    assert (tmp_path / "tuned" / "model.safetensors").stat().st_mtime_ns == state


def test_a_fit_serves_the_tuned_encoder_and_resumes(home: Path, tmp_path: Path) -> None:
    wishes = settings(home / "encoder", train__steps=4, train__contrast=6, scoring__tune=False, serve__encoder="fp32")
    recipe = override(Recipe(), wishes)
    said: list[str] = []

    def stop(stage: str, done: int, total: int | None) -> None:
        if stage.startswith("training"):
            raise KeyboardInterrupt

    interrupted: Progress = stop
    with pytest.raises(KeyboardInterrupt):
        fit(home / "corpus", tmp_path / "index", recipe, cache=tmp_path / "cache", progress=interrupted)
    weights = tmp_path / "index" / "work" / "contrast" / "model.safetensors"
    written = weights.stat().st_mtime_ns
    fit(home / "corpus", tmp_path / "index", recipe, cache=tmp_path / "cache", say=said.append, keep_work=True)
    assert any("fine-tuned by contrast, 6 steps" in line for line in said)
    assert weights.stat().st_mtime_ns == written  # it was done before the interruption
    tuned = Encoder.load(tmp_path / "index" / "work" / "contrast")
    texts = read_queries(open_corpus(home / "corpus"), "dev").texts[:8]
    served = Index.load(tmp_path / "index").encoder.query_vectors(texts)[1]
    assert np.allclose(served, tuned.embed(texts), atol=1e-4)
    assert not np.allclose(served, Encoder.load(home / "encoder").embed(texts), atol=1e-4)
    model = json.loads((tmp_path / "index" / "model" / "model.json").read_text())
    assert model["encoder"] == str(home / "encoder")  # not the folder of the fit
    assert not weights.parent.with_name("contrast.checkpoints").exists()


@pytest.mark.parametrize(("docids", "steps"), [(4, 2), (1, 0)])
def test_the_default_goes_by_the_size_of_the_corpus(home: Path, tmp_path: Path, docids: int, steps: int) -> None:
    """A step for 250 docids, and none where hardly any document has two texts."""
    write_small(tmp_path / "corpus", 500 // docids, docids, splits=("dev",))
    said: list[str] = []
    changes = settings(home / "encoder", train__steps=1, train__contrast="auto", train__passages=0)
    recipe = override(Recipe(), changes)
    fit(tmp_path / "corpus", tmp_path / "index", recipe, cache=tmp_path / "cache", say=said.append)
    found = [line for line in said if "by contrast" in line]
    assert found == ([f"encoder: fine-tuned by contrast, {steps} steps"] if steps else [])
    assert not (tmp_path / "index" / "work").exists()


def test_a_misspelt_docid_is_no_second_text(tmp_path: Path) -> None:
    write_small(tmp_path / "corpus", 40, 1, splits=("dev",))
    corpus = open_corpus(tmp_path / "corpus")
    assert read_inputs(corpus).paired_share() == read_inputs(corpus, typos=1.0).paired_share() == 1 / 40
    write_small(tmp_path / "queries", 40, 1)  # with train queries
    assert read_inputs(open_corpus(tmp_path / "queries")).paired_share() == 1


def test_contrast_is_part_of_the_training_time() -> None:
    assert contrast_steps(1_000_000, 1.0, 10.0) == 240  # 40 % of ten minutes
    assert contrast_steps(1_000_000, 8.0, 10.0) == 30  # an encoder with eight times the weights
    assert contrast_steps(1_000_000, 1.0, 0.0) == 800
