"""A small index with every source fused, its parts, and queries."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from pixnar.distributed.shards import split
from pixnar.fusion.fuse import DENSE, DOCIDS, EXPANSION, LEXICAL, Fusion
from pixnar.pipeline import fit
from pixnar.recipe import Recipe, override
from tests.helpers.fit_corpora import WORDS, settings, write_small
from tests.helpers.tiny_model import save_encoder

PARTS = 3


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`index` with all sources fused, `shards` with its parts, and `queries.jsonl`."""
    folder = tmp_path_factory.mktemp("scale")
    encoder = save_encoder(folder / "encoder", texts=WORDS)
    names = write_small(folder / "corpus", 40, 3)
    wish = settings(encoder, train__steps=2, scoring__tune=False)
    fit(folder / "corpus", folder / "index", override(Recipe(), wish), cache=folder / "cache", threads=1)
    path = folder / "index" / "manifest.json"
    content = json.loads(path.read_text())
    weights = dict.fromkeys((DOCIDS, LEXICAL, EXPANSION, DENSE), 1.0)
    content |= {"fusion": Fusion(weights, dict.fromkeys(weights, 1.0)).to_dict(), "depth": 8}
    path.write_text(json.dumps(content, sort_keys=True))  # as it is written: sums go in the order of the sources
    split(folder / "index", folder / "shards", PARTS, threads=1)
    chance = random.Random(5)
    texts = [" ".join(chance.sample(WORDS, chance.randint(1, 4))) for _ in range(300)] + sorted(names)[:20]
    rows = [json.dumps({"_id": f"q{i}", "text": text}) for i, text in enumerate(texts)]
    (folder / "queries.jsonl").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture(scope="session")
def texts(home: Path) -> list[str]:
    return [json.loads(line)["text"] for line in (home / "queries.jsonl").read_text().splitlines()]
