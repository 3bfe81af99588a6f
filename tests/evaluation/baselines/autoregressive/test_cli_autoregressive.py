"""The autoregressive baselines on the command line, as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pixnar.evaluation.baselines.autoregressive.retriever import NGRAM_ROWS
from tests.helpers.fit_corpora import WORDS, write_small
from tests.helpers.tiny_model import save_encoder
from tests.test_cli import fails, pixnar


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("cli")
    write_small(where / "corpus", 12, 3)
    save_encoder(where / "encoder", texts=[" ".join(WORDS)])
    return where


def test_seal_is_trained_searched_measured_and_its_model_taken_by_minder(home: Path) -> None:
    train = ("--pairs", "128", "--batch", "16", "--encoder", home / "encoder", "--beam", "4", "--threads", "1")
    done = pixnar("baseline", "seal", home / "corpus", "-o", home / "seal", *train, "--json", home / "s.json")
    assert done.returncode == 0, done.stderr
    assert "training: 128 pairs, dev MRR@10" in done.stdout
    told = json.loads((home / "s.json").read_text())
    assert told["sources"].startswith("SEAL (text and docids, beam 4, best of 128 training pairs at ")
    assert told["sources"].endswith("no generative pre-training)")
    assert f"{home / 'seal'}: {told['sources']}" in done.stdout.splitlines()
    assert f"dev MRR@10 {told['facts']['dev']['MRR@10']:.4f} in sample (12 queries)" in done.stdout
    done = pixnar("evaluate", home / "seal", home / "corpus", "--json", home / "e.json")
    assert done.returncode == 0, done.stderr
    figures = json.loads((home / "e.json").read_text())["figures"]
    assert figures["MRR@10"] == pytest.approx(told["facts"]["dev"]["MRR@10"])
    assert "is sound" in pixnar("verify", home / "seal").stdout
    assert json.loads(pixnar("search", home / "seal", "balin", "--json", "-").stdout)["hits"]
    done = pixnar("baseline", "minder", home / "corpus", "-o", home / "minder", "--model", home / "seal")
    assert done.returncode == 0, done.stderr
    assert "MINDER (text and docids, boost " in done.stdout
    assert {path.name for path in home.iterdir() if path.name.startswith(".")} == set()


def test_dsi_has_semantic_ids(home: Path) -> None:
    train = ("--pairs", "32", "--batch", "16", "--encoder", home / "encoder", "--ids", "semantic")
    done = pixnar("baseline", "dsi", home / "corpus", "-o", home / "dsi", *train)
    assert done.returncode == 0, done.stderr
    assert "DSI (text and docids, semantic ids, beam 10, best of 32 training pairs at " in done.stdout


def test_what_is_wrong_is_one_line(home: Path) -> None:
    out = ("-o", home / "x", "--encoder", home / "encoder")
    fails("give minutes or pairs to train for", "baseline", "seal", home / "corpus", *out)
    other = ("-o", home / "x", "--model", home / "encoder")
    fails("is no baseline (manifest.json is missing)", "baseline", "seal", home / "corpus", *other)
    fails("--model brings its own training", "baseline", "seal", home / "corpus", *other, "--batch", "8")
    fails("batch", "baseline", "dsi", home / "corpus", *out, "--pairs", "10", "--batch", "0")
    fails("--over", "baseline", "seal", home / "corpus", *out, "--over", "titles")
    fails("over text is not possible", "baseline", "minder", home / "corpus", *out, "--pairs", "1", "--over", "text")
    assert not (home / "x").exists()


@pytest.mark.parametrize("row", [*NGRAM_ROWS, "dsi"])
def test_help_teaches(row: str) -> None:
    said = " ".join(pixnar("baseline", row, "--help").stdout.split())
    assert f"pixnar baseline {row} CORPUS -o {row}.baseline --minutes" in said
    assert "no generative pre-training" in said
    assert ("--model" in said) == (row != "dsi")
