"""The demo corpus: real, leak-free, the same for the same seed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from pixnar.base.errors import CorpusError, MissingExtraError
from pixnar.base.normalize import normalize
from pixnar.corpus import Corpus, DemoStats, open_corpus, write_demo
from pixnar.corpus.demo import _codes_named, _is_name, _whole_phrases


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DemoStats]:
    folder = tmp_path_factory.mktemp("demo") / "icd10"
    return folder, write_demo(folder)


@pytest.fixture(scope="module")
def corpus(demo: tuple[Path, DemoStats]) -> Corpus:
    return open_corpus(demo[0])


def test_the_figures(demo: tuple[Path, DemoStats], corpus: Corpus) -> None:
    folder, stats = demo
    assert stats.documents == sum(1 for _ in corpus.documents())
    assert 7_500 < stats.documents < 9_500
    assert stats.docids == sum(1 for _ in corpus.docids())
    assert 19_000 < stats.docids < 23_000
    assert (stats.dev_queries, stats.test_queries) == (1450, 2900)
    assert sum(1 for _ in corpus.queries()) == 4350
    assert corpus.splits() == ["dev", "test"]
    assert "Not for clinical use" in stats.notice
    assert stats.notice in (folder / "README.md").read_text()


def test_no_query_leaks(corpus: Corpus) -> None:
    queries = {row.query_id: normalize(row.text) for row in corpus.queries()}
    documents = {row.doc_id: row for row in corpus.documents()}
    docids = {normalize(row.docid) for row in corpus.docids()}
    assert len(set(queries.values())) == len(queries)
    assert docids.isdisjoint(queries.values())
    assert not {normalize(row.title) for row in documents.values()} & set(queries.values())
    for split in corpus.splits():
        for row in corpus.qrels(split):
            assert row.query_id.startswith(split)
            assert f" {queries[row.query_id]} " not in f" {normalize(documents[row.doc_id].text)} "


def test_every_relevant_document_keeps_its_name_and_another_docid(corpus: Corpus) -> None:
    titles = {row.doc_id: row.title for row in corpus.documents()}
    docids = defaultdict(set)
    for row in corpus.docids():
        docids[row.doc_id].add(row.docid)
    assert all(titles[doc_id] in names for doc_id, names in docids.items())
    judged = {row.query_id: row.doc_id for split in corpus.splits() for row in corpus.qrels(split)}
    assert judged.keys() == {row.query_id for row in corpus.queries()}
    assert all(len(docids[doc_id]) >= 2 for doc_id in judged.values())


def test_known_terms(corpus: Corpus) -> None:
    known = {(row.doc_id, row.docid) for row in corpus.docids()}
    asked = {row.query_id: row.text for row in corpus.queries()}
    known |= {(row.doc_id, asked[row.query_id]) for split in corpus.splits() for row in corpus.qrels(split)}
    assert ("E23.2", "Diabetes insipidus") in known
    assert ("H92.0", "ear pain") in known
    assert ("R07", "chest pain") not in known  # "chest pain (R07.1-R07.9)" is a range


def test_same_seed_same_bytes_other_seed_other_queries(demo: tuple[Path, DemoStats], tmp_path: Path) -> None:
    folder, stats = demo
    script = "import sys; from pixnar.corpus import write_demo; print(tuple(write_demo(sys.argv[1])))"
    command = [sys.executable, "-c", script, str(tmp_path / "again")]
    again = subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=True
    )
    assert again.stdout.strip() == repr(tuple(stats))
    for file in folder.rglob("*.*"):
        assert file.read_bytes() == (tmp_path / "again" / file.relative_to(folder)).read_bytes()
    with pytest.raises(CorpusError, match="is not empty"):
        write_demo(tmp_path / "again")
    write_demo(tmp_path / "again", seed=1, overwrite=True)
    assert (tmp_path / "again" / "queries.jsonl").read_bytes() != (folder / "queries.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("note", "named"),
    [
        ("diabetes insipidus (E23.2)", [("E23.2", "diabetes insipidus")]),
        ("type 2 diabetes mellitus (E11.-)", [("E11", "type 2 diabetes mellitus")]),
        ("gestational diabetes (O24.4-)", [("O24.4", "gestational diabetes")]),
        ("dementia (F01.-, F03)", [("F01", "dementia"), ("F03", "dementia")]),
        ("sudden (idiopathic) hearing loss (H91.2-)", [("H91.2", "sudden (idiopathic) hearing loss")]),
        ("infections (A00-B99)", []),
        ("hypertension (I10-I1A)", []),
        ("burns (T22.- with fifth character 4)", []),
        ("spinal injury, spine (see Index)", []),
        ("no brackets", []),
    ],
)
def test_codes_named_by_a_note(note: str, named: list[tuple[str, str]]) -> None:
    assert list(_codes_named(note)) == named


def test_instructions_and_fragments_are_no_names() -> None:
    assert _is_name("Fever NOS")
    assert _is_name("Dementia in diseases classified elsewhere")
    for text in ("Conditions in I42.-", "This category is for use with others", "with fever", "myopathy in:", "()"):
        assert not _is_name(text)
    assert list(_whole_phrases(["a", "myopathy in:", "lupus (M32.1)"])) == ["a"]


def test_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "simple_icd_10_cm", None)
    with pytest.raises(MissingExtraError, match=r"the demo corpus needs .*pixnar\[demo\]"):
        write_demo(tmp_path / "c")
