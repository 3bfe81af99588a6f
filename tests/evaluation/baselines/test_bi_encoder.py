"""Fine-tuning: it learns, resumes, is the same every time, and what shares a document is not a negative."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("faiss")

from pixnar.base.errors import PixnarError
from pixnar.corpus import DocidRow, Document, Qrel, Query, open_corpus, write_corpus
from pixnar.evaluation.baselines import bi_encoder, build_dense, describe, open_retriever
from pixnar.evaluation.baselines.bi_encoder import Judge, Tuned, Tuning, _Sides, fine_tune
from pixnar.evaluation.baselines.entries import Entries
from pixnar.evaluation.measures import mrr_at
from pixnar.evaluation.queries import Queries, read_queries
from pixnar.model.encoder import Encoder
from pixnar.train.data import TrainingInputs, read_inputs
from tests.helpers.tiny_model import save_encoder

ROOT = Path(__file__).parents[3]
SYLLABLES = [head + tail for head in ("ba", "de", "fi", "go", "ku") for tail in ("lin", "mor", "net", "pol")]
TUNING = Tuning(steps=40, batch=32, learning_rate=3e-3, checks=2)


def write_topics(folder: Path, documents: int = 30) -> None:
    """Each document has a word of its own that its docids and queries use, and words that all share."""
    chance = np.random.default_rng(0)

    def text(i: int) -> str:
        more = chance.choice(SYLLABLES, 3, replace=False).tolist()
        words = [f"topic{i}", *more]
        chance.shuffle(words)
        return " ".join(words)

    splits = ("train", "dev")
    write_corpus(
        folder,
        [Document(f"d{i:02}", f"topic{i}", text(i), {}) for i in range(documents)],
        [DocidRow(f"d{i:02}", text(i)) for i in range(documents) for _ in range(4)],
        [Query(f"{split}{i}", text(i)) for split in splits for i in range(documents)],
        {split: [Qrel(f"{split}{i}", f"d{i:02}", 1) for i in range(documents)] for split in splits},
    )


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """So small a model is slower on more, and by far where the machine is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("tuned")
    write_topics(where / "corpus")
    save_encoder(where / "encoder", texts=[*SYLLABLES, *(f"topic{i}" for i in range(30))])
    return where


def tuned(
    home: Path, tuning: Tuning, over: str = "docids", folder: Path | None = None, **rest: Any
) -> tuple[Encoder, Tuned, list[str]]:
    corpus = open_corpus(home / "corpus")
    encoder, said = Encoder.load(home / "encoder"), list[str]()
    entries, texts = Entries.read_apart(corpus, over)
    parts = encoder, read_inputs(corpus), entries, texts, read_queries(corpus, "dev"), tuning
    with tempfile.TemporaryDirectory() as other:
        return encoder, fine_tune(*parts, folder=folder or Path(other), say=said.append, **rest), said


def same(one: Encoder, other: Encoder) -> bool:
    state = other.state_dict()
    return all(torch.equal(value, state[name]) for name, value in one.state_dict().items())


def test_it_learns_and_is_the_same_every_time(home: Path) -> None:
    encoder, run, told = tuned(home, TUNING)
    assert run.steps == 40
    assert run.best > run.start + 0.1
    assert run.best_step in (20, 40)
    assert len(told) == 3
    again, other, _ = tuned(home, TUNING)
    assert other == run
    assert same(encoder, again)
    third, _, _ = tuned(home, replace(TUNING, steps=4, seed=1))
    assert not same(third, again)


def test_it_learns_over_docids_and_text_together(home: Path) -> None:
    _, run, _ = tuned(home, TUNING, "both")
    assert run.best > run.start + 0.1
    assert run.checked_entries == 150


_TUNE = (
    "import sys; from tests.evaluation.baselines import test_bi_encoder as t; t.tune_slowly(*map(t.Path, sys.argv[1:]))"
)
"""A process of its own: one that multiprocessing spawns cannot import `tests` unless the caller has it on its path."""


def tune_slowly(home: Path, folder: Path) -> None:
    """Slowly, so that it can be killed where we want."""
    torch.set_num_threads(1)
    tuned(home, TUNING, folder=folder, of="this", progress=lambda *_: time.sleep(0.02))


def test_a_killed_run_resumes_to_the_same_weights(home: Path, tmp_path: Path) -> None:
    whole, run, _ = tuned(home, TUNING)
    for step in ("step-000000", "step-000020"):
        command = [sys.executable, "-c", _TUNE, str(home), str(tmp_path)]
        with subprocess.Popen(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}) as child:
            _wait_for((tmp_path / step / "state.json").exists, child)
            time.sleep(0.1)  # some steps further
            child.kill()
        assert child.returncode == -signal.SIGKILL
    resumed, again, said = tuned(home, TUNING, folder=tmp_path, of="this")
    assert said[0] == "fine-tuning: resumed at step 20"
    assert len([line for line in said if "dev MRR@10" in line]) == 1  # step 40: the others are known
    assert again == run
    assert same(whole, resumed)
    _, other, said = tuned(home, replace(TUNING, steps=2), folder=tmp_path, of="this")
    assert "starting again" in said[0]
    assert other.steps == 2


def _wait_for(there: Callable[[], bool], child: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 120
    while not there():
        assert child.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < until
        time.sleep(0.005)


def test_minutes_are_kept_by_the_clock(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that take four times as long after the first ten do not make the run longer, and rates end at zero."""
    clock, rates = [0.0], list[float]()

    def slower(run: Any, done: int, part: float) -> float:
        loss = step(run, done, part)
        clock[0] += 0.1 if done < 10 else 0.4
        rates.append(run.optimizer.param_groups[0]["lr"])
        return loss

    step = bi_encoder._TuningRun.step
    monkeypatch.setattr(bi_encoder._TuningRun, "step", slower)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    _, run, said = tuned(home, Tuning(minutes=0.1, batch=8, warmup=2, checks=3), folder=tmp_path)
    assert run.steps == 10 + 13  # 1 s, then 5 s of 0.4 s each, the last begun before the end
    assert len([line for line in said if "dev MRR@10" in line]) == 4
    assert max(rates) == pytest.approx(2e-5)
    assert rates[-1] < 0.1 * 2e-5


def test_what_is_served_is_what_was_kept(home: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    facts = build_dense(
        home / "corpus", tmp_path / "b", encoder=home / "encoder", over="text", tuning=TUNING, say=lines.append
    )
    run = facts["fine_tuning"]
    assert run["best"] > run["start"]
    dev = read_queries(open_corpus(home / "corpus"), "dev")
    hits = open_retriever(tmp_path / "b").search_batch(dev.texts)
    assert mrr_at([[hit.id for hit in row] for row in hits], dev.relevant) == pytest.approx(run["best"], abs=0.02)
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    assert manifest["options"]["tuning"]["steps"] == 40
    assert manifest["facts"]["fine_tuning"] == run
    assert describe(tmp_path / "b") == f"dense (text, fine-tuned, step {run['best_step']} of 40)"
    assert [path.name for path in tmp_path.iterdir()] == ["b"]  # checkpoints are gone


def test_a_build_resumes_beside_its_output(home: Path, tmp_path: Path) -> None:
    class StoppedError(Exception):
        pass

    def stop(stage: str, done: int, total: int) -> None:
        if stage.startswith("fine-tuning") and done >= 25:
            raise StoppedError

    def build(name: str, **rest: Any) -> list[str]:
        said: list[str] = []
        shared: dict[str, Any] = {"encoder": home / "encoder", "tuning": TUNING, "say": said.append}
        build_dense(home / "corpus", tmp_path / name, **shared, **rest)
        return said

    with pytest.raises(StoppedError):
        build("b", progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == [".b.tuning"]
    assert "fine-tuning: resumed at step 20" in build("b")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
    build("whole")
    files = [json.loads((tmp_path / name / "manifest.json").read_text())["files"] for name in ("b", "whole")]
    assert files[0]["vectors.faiss"] == files[1]["vectors.faiss"]


def test_where_nothing_is_better_the_encoder_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter([0.5, 0.5, 0.4])
    monkeypatch.setattr(Judge, "__call__", lambda *_: next(values))
    encoder, run, told = tuned(home, replace(TUNING, steps=4))
    assert (run.best_step, run.best) == (0, 0.5)
    assert "nothing better on dev" in told[-1]
    assert same(encoder, Encoder.load(home / "encoder"))


def test_minutes_and_no_dev(home: Path, tmp_path: Path) -> None:
    corpus = open_corpus(home / "corpus")
    entries, texts = Entries.read(corpus, "docids")
    stages: list[tuple[str, int, int]] = []
    run = fine_tune(
        Encoder.load(home / "encoder"),
        read_inputs(corpus),
        entries,
        texts,
        Queries([], [], []),
        Tuning(minutes=0.02, batch=8),
        folder=tmp_path,
        progress=lambda *told: stages.append(told),
    )
    assert run.steps >= 1
    assert run.best_step == run.steps
    assert np.isnan(run.best)
    assert all(stage.startswith("fine-tuning: loss ") for stage, _, _ in stages)
    assert stages[-1][0].endswith(" 0 s left")


def small() -> tuple[TrainingInputs, Entries]:
    """Docids 0 and 1 name document a, 2 names a and b, 3 names b, 4 names c; query 5 is about b and c."""
    named = [{"a"}, {"a"}, {"a", "b"}, {"b"}, {"c"}]
    entries = Entries.of(list("01234"), named)
    pairs = np.array([(i, "abc".index(one)) for i, names in enumerate(named) for one in sorted(names)])
    names = TrainingInputs(
        doc_ids=list("abc"),
        docids=list("01234"),
        pair_docid=pairs[:, 0],
        pair_document=pairs[:, 1],
        queries=["5"],
        query_index=np.array([0, 0]),
        query_document=np.array([1, 2]),
        query_docid=np.array([-1]),
    )
    return names, entries


def test_who_shares_a_document_is_no_negative() -> None:
    names, entries = small()
    sides = _Sides(names, entries, names.docids)
    epoch = names.pairs(self_share=0.0).epoch(0)
    batch = type(epoch)(np.array([0, 3, 5, 4]), np.array([1, 2, 3, 4]), np.array([0, 1, 1, 2]))
    inputs, targets, shared = sides.batch(batch)
    assert (inputs, targets) == (["0", "3", "5"], ["1", "2", "3"])  # 4 would have found itself
    assert shared.tolist() == [[False, True, False], [False, False, True], [False, True, False]]


def test_text_as_the_other_side() -> None:
    names, _ = small()
    numbers = np.arange(3)
    sides = _Sides(names, Entries(["b", "c"], numbers, numbers[:-1]), ["text b", "text c"])
    batch = type(names.pairs().epoch(0))(np.array([0, 3, 5, 4]), np.array([1, 2, 4, 4]), np.array([0, 1, 2, 2]))
    inputs, targets, shared = sides.batch(batch)  # a has no text
    assert (inputs, targets) == (["3", "5", "4"], ["text b", "text c", "text c"])
    assert shared.tolist() == [[False, False, False], [True, False, True], [False, True, False]]


def test_docids_and_text_take_turns() -> None:
    names, docids = small()
    owners = [{"a"}, {"a"}, {"a", "b"}, {"b"}, {"c"}, {"b"}, {"c"}]
    entries = Entries.of([*"01234", "text b", "text c"], owners, [*"01234", "", ""])
    sides = _Sides(names, entries, [*"01234", "text b", "text c"])
    batch = type(names.pairs().epoch(0))(np.array([0, 3, 5, 4]), np.array([1, 2, 3, 4]), np.array([0, 1, 1, 2]))
    inputs, targets, _ = sides.batch(batch)  # a has no text; 4 would find itself, but for its text
    assert (inputs, targets) == (["0", "3", "5", "4"], ["1", "text b", "3", "text c"])
    assert len(docids) == 5


def test_checks_on_a_sample_hold_all_relevant_documents(home: Path) -> None:
    corpus = open_corpus(home / "corpus")
    entries, texts = Entries.read(corpus, "docids")
    dev = read_queries(corpus, "dev").first(5)
    judge = Judge(entries, texts, dev, 40)
    assert 36 < len(judge.rows) <= 40
    assert "among 40 of 120 entries" in judge.words
    kept = {entries.doc_ids[i] for row in judge.rows for i in entries.documents[entries.offsets[row] :][:1]}
    assert set().union(*dev.relevant) <= kept
    encoder = Encoder.load(home / "encoder")
    assert Judge(entries, texts, dev, 0)(encoder) >= judge(encoder) >= Judge(entries, texts, dev, 1000)(encoder)


def test_what_is_wrong(home: Path, tmp_path: Path) -> None:
    for tuning, reason in (
        (Tuning(), "would never end"),
        (replace(TUNING, batch=1), "batch 1 is not possible: give 2 or more"),
        (replace(TUNING, temperature=0), "temperature 0 is not possible"),
        (replace(TUNING, temperature=float("inf")), "temperature inf is not possible"),
        (replace(TUNING, learning_rate=float("nan")), "learning_rate nan"),
        (replace(TUNING, device="nonsense"), "cannot use the device nonsense"),
    ):
        with pytest.raises(PixnarError, match=reason):
            tuned(home, tuning)
    names, _ = small()
    lonely = replace(
        names,
        docids=["0", "4"],
        pair_docid=np.array([0, 1]),
        pair_document=np.array([0, 2]),
        queries=[],
        query_index=np.zeros(0, np.int64),
        query_document=np.zeros(0, np.int64),
        query_docid=np.zeros(0, np.int64),
    )
    entries = Entries.of(["0", "4"], [{"a"}, {"c"}])
    with pytest.raises(PixnarError, match="nothing to fine-tune on"):
        fine_tune(
            Encoder.load(home / "encoder"), lonely, entries, ["0", "4"], Queries([], [], []), TUNING, folder=tmp_path
        )
