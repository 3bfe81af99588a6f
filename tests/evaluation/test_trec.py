"""Run and qrels files: what is written is read back, and bad lines are named."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from pixnar.base.errors import PixnarError
from pixnar.evaluation import read_qrels, read_run, write_qrels, write_run


@pytest.mark.parametrize("name", ["run.trec", "run.trec.gz"])
def test_a_run_keeps_its_order(tmp_path: Path, name: str) -> None:
    run = {"q1": [("b", 1.0), ("c", 1.0), ("a", 1.0), ("d", -2.5)], "q2": [("ä", 7.25)], "q3": []}
    write_run(tmp_path / name, run)
    again = read_run(tmp_path / name)
    assert {query: [doc for doc, _ in hits] for query, hits in again.items()} == {
        "q1": ["b", "c", "a", "d"],
        "q2": ["ä"],
    }
    assert again["q2"] == [("ä", 7.25)]
    assert name.endswith(".gz") == ((tmp_path / name).read_bytes()[:2] == b"\x1f\x8b")


def test_ties_as_trec_eval_breaks_them(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text("q Q0 a 1 1.0 x\nq Q0 c 2 1.0 x\nq Q0 b 3 2e0 x\n")
    assert [doc for doc, _ in read_run(path)["q"]] == ["b", "c", "a"]


@given(st.lists(st.sampled_from([0.1, 60.0, 60.0000001, 1e7, -3.5, 1e-30]), min_size=1, max_size=8))
def test_trec_eval_reads_the_order_we_mean(tmp_path_factory: pytest.TempPathFactory, scores: list[float]) -> None:
    path = tmp_path_factory.mktemp("runs") / "run"
    ordered = sorted(scores, reverse=True)
    write_run(path, {"q": [(f"d{i}", score) for i, score in enumerate(ordered)]})
    written = {line.split()[2]: float(line.split()[4]) for line in path.read_text().splitlines()}
    for i in range(len(ordered)):
        evaluator = pytrec_eval.RelevanceEvaluator({"q": {f"d{i}": 1}}, {"recip_rank"})
        assert evaluator.evaluate({"q": written})["q"]["recip_rank"] == pytest.approx(1 / (i + 1), abs=1e-6)
    assert [doc for doc, _ in read_run(path)["q"]] == [f"d{i}" for i in range(len(ordered))]


def test_qrels_with_blanks_in_ids(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nmy query\td 1\t1\n")
    assert read_qrels(tmp_path / "dev.tsv") == {"my query": {"d 1": 1}}


def test_qrels_both_ways(tmp_path: Path) -> None:
    qrels = {"q1": {"a": 1, "b": 0}, "q2": {"c": 3}}
    write_qrels(tmp_path / "qrels", qrels)
    assert read_qrels(tmp_path / "qrels") == qrels
    beir = tmp_path / "dev.tsv.gz"
    beir.write_bytes(gzip.compress(b"query-id\tcorpus-id\tscore\nq1\ta\t1\nq1\tb\t0\nq2\tc\t3\n"))
    assert read_qrels(beir) == qrels


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"q Q0 a 1 1.0\n", ":1: 5 columns"),
        (b"q Q0 a 1 1.0 x\nq Q0 b 2 much x\n", ":2: 'much' is no number"),
        (b"q Q0 a 1 nan x\n", "is no number"),
        (b"q Q0 a 1 1 x\nq Q0 b 2 -1e39 x\n", ":2: the score -1e39 is too large for 32 bits"),
        (b"q Q0 a 1 2 x\nq Q0 a 2 1 x\n", ":2: query q has document a twice"),
        (b"q Q0 \xff 1 1.0 x\n", ":1: invalid UTF-8"),
        (b"", "is empty"),
    ],
)
def test_bad_runs(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "run").write_bytes(content)
    with pytest.raises(PixnarError, match=message):
        read_run(tmp_path / "run")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"q a\n", ":1: 2 columns"), (b"q 0 a 1.5\n", "no whole number"), (b"q 0 a x\n", "no number"), (b"", "no judge")],
)
def test_bad_qrels(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "qrels").write_bytes(content)
    with pytest.raises(PixnarError, match=message):
        read_qrels(tmp_path / "qrels")


def test_missing_file_and_ids_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(PixnarError, match="cannot read"):
        read_run(tmp_path / "none")
    with pytest.raises(PixnarError, match="'two words' cannot be written"):
        write_run(tmp_path / "run", {"q": [("two words", 1.0)]})
    with pytest.raises(PixnarError, match="cannot be written to a TREC file: it is no Unicode text"):
        write_qrels(tmp_path / "run", {"q": {"\udc80": 1}})
    assert not (tmp_path / "run").exists()


def test_the_largest_of_32_bits_is_a_score(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("q Q0 a 1 3.40282347e+38 x\nq Q0 b 2 -3.4028235e+38 x\n")
    largest = float(np.finfo(np.float32).max)
    assert read_run(tmp_path / "run") == {"q": [("a", largest), ("b", -largest)]}
