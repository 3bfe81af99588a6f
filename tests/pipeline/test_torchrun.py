"""One fit over two processes, as a user starts it, beside one in a single process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pixnar.index import Index
from tests.helpers.fit_corpora import WORDS, settings, write_small
from tests.helpers.tiny_model import save_encoder

SETTINGS = {"shortlist__minutes": 0, "shortlist__m": 6, "serve__encoder": "fp32", "train__dev_queries": 10}


def fitted(home: Path, name: str, launch: list[str], more: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    extra = [part for setting in settings(home / "encoder", **SETTINGS) for part in ("--set", setting)]
    arguments = [
        "fit",
        home / "corpus",
        "-o",
        home / name,
        "--cache",
        home / f"cache {name}",
        "--threads",
        "1",
        *extra,
    ]
    command = [sys.executable, *launch, "-m", "pixnar", *map(str, arguments), *more]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)


def test_torchrun(tmp_path: Path) -> None:
    write_small(tmp_path / "corpus", 12, 3)
    save_encoder(tmp_path / "encoder", texts=WORDS)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = fitted(tmp_path, "two", torchrun, ("--json", str(tmp_path / "two.json")))
    assert done.returncode == 0, done.stderr[-3000:]
    told = [line for line in done.stdout.splitlines() if line.startswith("training:")]
    assert len(told) == 1, done.stdout  # the first process speaks, the other does not
    alone = fitted(tmp_path, "one", [], ("--json", str(tmp_path / "one.json")))
    assert alone.returncode == 0, alone.stderr[-3000:]
    facts = [json.loads((tmp_path / f"{name}.json").read_text()) for name in ("one", "two")]
    for kind, figures in facts[0]["dev"].items():
        assert facts[1]["dev"][kind] == pytest.approx(figures, abs=1e-6), kind
    one, two = (Index.load(tmp_path / name) for name in ("one", "two"))
    assert two.verify() == one.verify()
    assert not (tmp_path / "two" / "work").exists()
    for query in ("balin demor", "finet gopol kurus", "lasta"):
        hits = [index.search(query, k=5) for index in (one, two)]
        assert [hit.id for hit in hits[0]] == [hit.id for hit in hits[1]]
        assert [hit.score for hit in hits[1]] == pytest.approx([hit.score for hit in hits[0]], rel=1e-3)
    again = fitted(tmp_path, "two", torchrun)
    assert again.returncode != 0
    own = [line for line in again.stderr.splitlines() if line.startswith("pixnar: ")]
    assert len(own) == 1
    assert "two holds a finished index" in own[0]
