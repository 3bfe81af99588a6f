"""The benchmark of encoding measures every way, and all of them give the same vectors, or nearly."""

from __future__ import annotations

import json
from pathlib import Path

from pixnar.benchmarks import text_vectors

from tests.helpers.fit_corpora import WORDS, write_small
from tests.helpers.tiny_model import save_encoder


def test_every_way_is_measured(tmp_path: Path) -> None:
    write_small(tmp_path / "corpus", 12, 3)
    encoder = save_encoder(tmp_path / "encoder", texts=WORDS)
    out = tmp_path / "out.json"
    text_vectors.run(str(tmp_path / "corpus"), encoder=str(encoder), texts=20, threads=(1, 2), rounds=2, out=out)
    told = json.loads(out.read_bytes())
    assert [(row["way"], row["threads"]) for row in told["rates"]] == [
        (way, threads) for threads in (1, 2) for way in ("torch", "fp32", "int8", "int8-blocks")
    ]
    assert all(row["texts_per_second"] > 0 for row in told["rates"])
    assert all(row["mean_cosine_to_torch"] > 0.98 for row in told["rates"])
    assert told["dense_dev_mrr10"]["queries"] == 12
