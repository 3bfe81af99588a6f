from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pixnar.base.errors import PixnarError
from pixnar.corpus import open_corpus
from pixnar.evaluation.queries import read_queries
from pixnar.model.encoder import Encoder
from pixnar.model.features import FeatureCache
from pixnar.pipeline import FitReport, fit, model_stage, sources
from pixnar.pipeline.sources import PrecisionSample, choose_precision
from pixnar.recipe import Recipe, override
from pixnar.runtime.encoder_folder import FP32, INT8
from pixnar.train.data import read_inputs
from tests.helpers.fit_corpora import WORDS, settings, write_small
from tests.helpers.tiny_model import save_encoder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_encoder(tmp_path_factory.mktemp("encoder"), texts=WORDS)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small") / "corpus"
    write_small(folder, 40, 4)
    return folder


def made(corpus: Path, output: Path, encoder: Path, **changes: object) -> FitReport:
    wish = override(Recipe(), settings(encoder, **changes))
    return fit(corpus, output, wish, cache=output.parent / "cache", threads=1)


def chosen(corpus: Path, encoder: Path, folder: Path, wish: str = "auto", split: str = "dev") -> tuple[Any, list[str]]:
    source = open_corpus(corpus)
    said: list[str] = []
    names, dev = read_inputs(source), read_queries(source, split)
    facts = choose_precision(Encoder.load(encoder), folder, wish, names, dev, 100, said.append, 1)
    return facts, said


def test_few_texts_stay_in_fp32(corpus: Path, encoder: Path, tmp_path: Path) -> None:
    facts, (line,) = chosen(corpus, encoder, tmp_path)
    assert facts == {"precision": FP32}
    assert line.startswith("vectors: encoder in fp32")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("int8", "precision"), [(0.499, INT8), (0.497, FP32), (0.6, INT8)])
def test_auto_takes_int8_where_it_costs_little(
    corpus: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, int8: float, precision: str
) -> None:
    figures = {FP32: 0.5, INT8: int8}
    monkeypatch.setattr(sources, "WORTH", 0)
    monkeypatch.setattr(PrecisionSample, "mrr", lambda self, features: figures[features.precision])
    facts, (line,) = chosen(corpus, encoder, tmp_path)
    assert facts == {"precision": precision, "mrr10": figures, "queries": 40, "docids": 160}
    assert line.startswith(f"vectors: encoder in {precision}; dense MRR@10 0.5000 in fp32 and {int8:.4f} in int8")
    assert chosen(corpus, encoder, tmp_path, wish=INT8)[0] == {"precision": INT8}
    assert chosen(corpus, encoder, tmp_path, wish=FP32)[0] == {"precision": FP32}


@pytest.mark.parametrize("split", ["dev", "none"])
def test_a_sample_is_measured_both_ways(
    corpus: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: str
) -> None:
    monkeypatch.setattr(sources, "WORTH", 0)
    facts, (line,) = chosen(corpus, encoder, tmp_path, split=split)
    assert all(0.1 < facts["mrr10"][precision] <= 1 for precision in (FP32, INT8))
    assert ("dev queries" if split == "dev" else "siblings") in line
    assert chosen(corpus, encoder, tmp_path, split=split)[0] == facts


def test_siblings_do_not_find_themselves(corpus: Path) -> None:
    source = open_corpus(corpus)
    names = read_inputs(source)
    sample = PrecisionSample.draw(names, read_queries(source, "none"))
    assert sample.queries
    assert not set(sample.queries) & set(sample.docids)
    assert all(sample.relevant)
    assert len(sample.rows) == len(sample.documents)
    assert set(sample.rows) == set(range(len(sample.docids)))


def test_without_queries_and_siblings_fp32(encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "WORTH", 0)
    write_small(tmp_path / "corpus", 30, 1, splits=())
    facts, (line,) = chosen(tmp_path / "corpus", encoder, tmp_path / "cache")
    assert facts == {"precision": FP32}
    assert "too few" in line


def test_where_int8_is_not_possible(
    corpus: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: PrecisionSample, features: FeatureCache) -> float:
        raise PixnarError("no onnx")

    monkeypatch.setattr(sources, "WORTH", 0)
    monkeypatch.setattr(PrecisionSample, "mrr", fails)
    facts, (line,) = chosen(corpus, encoder, tmp_path)
    assert facts == {"precision": FP32}
    assert "no onnx" in line


def test_a_fit_in_int8(corpus: Path, encoder: Path, tmp_path: Path) -> None:
    report = made(corpus, tmp_path / "index", encoder, model__vectors=INT8)
    assert report.facts["vectors"] == {"precision": INT8}
    kept = {path.name.split(".", 1)[1] for path in (tmp_path / "cache" / "features").iterdir()}
    assert kept == {"features", "fp32.encoder", "int8.encoder"}
    again = made(corpus, tmp_path / "again", encoder, model__vectors=INT8)
    assert again.dev == report.dev
    names = ("model/model.safetensors", "vectors.pixnar")
    assert all((tmp_path / "index" / n).read_bytes() == (tmp_path / "again" / n).read_bytes() for n in names)


def test_a_resumed_fit_keeps_its_choice(
    corpus: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: Any, **more: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(sources, "WORTH", 0)
    monkeypatch.setattr(PrecisionSample, "mrr", lambda self, features: 0.5)
    with monkeypatch.context() as patch:
        patch.setattr(model_stage, "train", interrupted)
        with pytest.raises(KeyboardInterrupt):
            made(corpus, tmp_path / "index", encoder)
    monkeypatch.setattr(model_stage, "choose_precision", None)  # it is not asked again
    report = made(corpus, tmp_path / "index", encoder)
    assert report.facts["vectors"]["precision"] == INT8


def test_phrases_that_are_docids_are_encoded_once(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_small(tmp_path / "corpus", 40, 4, splits=())
    seen: Counter[str] = Counter()
    encoded = FeatureCache._encoded

    def watched(self: FeatureCache, texts: Any, report: Any) -> Any:
        seen.update(texts)
        return encoded(self, texts, report)

    monkeypatch.setattr(FeatureCache, "_encoded", watched)
    (tmp_path / "solved").mkdir()
    phrases = {"vocab__min_count": 1, "vocab__size": 2000, "fuse__text_vectors": 0, "train__passages": 0}
    made(tmp_path / "corpus", tmp_path / "solved" / "index", encoder, **phrases)
    assert seen.keys() == set(read_inputs(open_corpus(tmp_path / "corpus")).docids)  # solved rows read no phrase
    seen.clear()
    made(tmp_path / "corpus", tmp_path / "index", encoder, **phrases, model__head="encoder")
    assert seen.keys() >= set(read_inputs(open_corpus(tmp_path / "corpus")).docids)
    assert max(seen.values()) == 1
    assert np.sum(list(seen.values())) > 160
