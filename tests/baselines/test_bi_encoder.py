"""Fine-tuning: it learns, it is the same every time, and what shares a document is no negative."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("faiss")

from pixnar.baselines import build_dense, open_retriever
from pixnar.baselines.bi_encoder import Judge, Tuned, Tuning, _Sides, fine_tune
from pixnar.baselines.entries import Entries
from pixnar.corpus import DocidRow, Document, Qrel, Query, open_corpus, write_corpus
from pixnar.errors import PixnarError
from pixnar.evaluate.metrics import mrr_at
from pixnar.evaluate.queries import Queries, read_queries
from pixnar.model.encoder import Encoder
from pixnar.train.names import Names, read_names
from tests.model.tiny import save_encoder

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


def tuned(home: Path, tuning: Tuning, over: str = "docids") -> tuple[Encoder, Tuned, list[str]]:
    corpus = open_corpus(home / "corpus")
    encoder, told = Encoder.load(home / "encoder"), list[str]()
    entries, texts = Entries.read(corpus, over)
    dev = read_queries(corpus, "dev")
    return encoder, fine_tune(encoder, read_names(corpus), entries, texts, dev, tuning, say=told.append), told


def test_it_learns_and_is_the_same_every_time(home: Path) -> None:
    encoder, run, told = tuned(home, TUNING)
    assert run.steps == 40
    assert run.best > run.start + 0.1
    assert run.best_step in (20, 40)
    assert len(told) == 3
    again, other, _ = tuned(home, TUNING)
    assert other == run
    state = again.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in encoder.state_dict().items())
    third, _, _ = tuned(home, replace(TUNING, steps=4, seed=1))
    assert not all(torch.equal(value, state[name]) for name, value in third.state_dict().items())


def test_what_is_served_is_what_was_kept(home: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    facts = build_dense(
        home / "corpus", tmp_path / "b", encoder=home / "encoder", over="text", tuning=TUNING, say=lines.append
    )
    run = facts["fine_tuning"]
    assert run["best"] > run["start"]
    dev = read_queries(open_corpus(home / "corpus"), "dev")
    hits = open_retriever(tmp_path / "b").search_batch(dev.texts)
    assert mrr_at([[hit.doc_id for hit in row] for row in hits], dev.relevant) == pytest.approx(run["best"], abs=0.02)
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    assert manifest["options"]["tuning"]["steps"] == 40
    assert manifest["facts"]["fine_tuning"] == run


def test_where_nothing_is_better_the_encoder_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter([0.5, 0.5, 0.4])
    monkeypatch.setattr(Judge, "__call__", lambda *_: next(values))
    encoder, run, told = tuned(home, replace(TUNING, steps=4))
    assert (run.best_step, run.best) == (0, 0.5)
    assert "nothing better on dev" in told[-1]
    before = Encoder.load(home / "encoder").state_dict()
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())


def test_minutes_and_no_dev(home: Path) -> None:
    corpus = open_corpus(home / "corpus")
    entries, texts = Entries.read(corpus, "docids")
    stages: list[tuple[str, int, int]] = []
    run = fine_tune(
        Encoder.load(home / "encoder"),
        read_names(corpus),
        entries,
        texts,
        Queries([], [], []),
        Tuning(minutes=0.02, batch=8),
        progress=lambda *told: stages.append(told),
    )
    assert run.steps >= 1
    assert run.best_step == run.steps
    assert np.isnan(run.best)
    assert all(stage.startswith("fine-tuning: loss ") for stage, _, _ in stages)
    assert run.steps < 4 or stages[-1][0].endswith(" s left")  # the plan is made after four steps


def small() -> tuple[Names, Entries]:
    """Docids 0 and 1 name document a, 2 names a and b, 3 names b, 4 names c; query 5 is about b and c."""
    named = [{"a"}, {"a"}, {"a", "b"}, {"b"}, {"c"}]
    entries = Entries.of(list("01234"), named)
    pairs = np.array([(i, "abc".index(one)) for i, names in enumerate(named) for one in sorted(names)])
    names = Names(
        doc_ids=list("abc"),
        docids=list("01234"),
        pair_docid=pairs[:, 0],
        pair_document=pairs[:, 1],
        queries=["5"],
        query_index=np.array([0, 0]),
        query_document=np.array([1, 2]),
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


def test_what_is_wrong(home: Path) -> None:
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
    )
    entries = Entries.of(["0", "4"], [{"a"}, {"c"}])
    with pytest.raises(PixnarError, match="nothing to fine-tune on"):
        fine_tune(Encoder.load(home / "encoder"), lonely, entries, ["0", "4"], Queries([], [], []), TUNING)
