"""A docid table built in shards by first token is the one that is built at once, byte for byte."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pixnar.benchmarks.generate import generate_docids
from pixnar.benchmarks.kill_workers import killing

from pixnar.base.errors import CorpusError, PixnarError
from pixnar.corpus import open_corpus
from pixnar.distributed import table as in_shards
from pixnar.distributed.cluster import Executor, LocalExecutor, RayExecutor
from pixnar.table import build_table
from pixnar.vocab import Vocabulary, normalize
from tests.helpers.shard_corpora import contents, write_sharded

names = st.text("ab c,-é", min_size=1, max_size=10).filter(lambda text: bool(normalize(text)))
pairs = st.lists(st.tuples(st.integers(0, 4), names | names.map(str.upper)), max_size=50)


def check_same(
    rows: list[tuple[int, str]], files: int, shards: int, index: bool, spellings: bool, executor: Executor
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        corpus = write_sharded(folder / "corpus", [(f"d{number}", text) for number, text in rows], 5, files)
        vocabulary = Vocabulary.build(["a b", "b c", "ab", *(text for _, text in rows)], 540, min_count=1, threads=1)
        build_table(corpus, vocabulary, folder / "plain", index=index, spellings=spellings, threads=1)
        found = in_shards.build_table(
            corpus,
            vocabulary,
            folder / "made",
            executor,
            folder,
            index=index,
            spellings=spellings,
            shards=shards,
            least=60,
        )
        assert contents(folder / "made") == contents(folder / "plain")
        assert found.pairs == len({(number, normalize(text)) for number, text in rows})
        assert sorted(os.listdir(folder)) == ["corpus", "made", "plain"]


@settings(max_examples=40)
@given(pairs, st.integers(1, 3), st.integers(1, 6), st.booleans(), st.booleans())
def test_any_docids_in_any_shards(
    rows: list[tuple[int, str]], files: int, shards: int, index: bool, spellings: bool
) -> None:
    check_same(rows, files, shards, index, spellings, LocalExecutor())


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs, st.integers(1, 3), st.integers(1, 4))
def test_any_docids_by_ray(ray_executor: RayExecutor, rows: list[tuple[int, str]], files: int, shards: int) -> None:
    check_same(rows, files, shards, True, True, ray_executor)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, and the table that one process makes of it."""
    folder = tmp_path_factory.mktemp("tables")
    texts = list(generate_docids(6000))
    write_sharded(folder / "corpus", [(f"d{at * 31 % 400}", text) for at, text in enumerate(texts)], 400, 4)
    build_table(folder / "corpus", Vocabulary.build(texts, 4096), folder / "plain")
    return folder


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers(ray_executor: RayExecutor, home: Path, tmp_path: Path, workers: int) -> None:
    vocabulary = Vocabulary.load(home / "plain" / "vocabulary-000001.pixnar")
    in_shards.build_table(home / "corpus", vocabulary, tmp_path / "made", RayExecutor(workers), tmp_path, least=1000)
    assert contents(tmp_path / "made") == contents(home / "plain")


def test_workers_that_work_in_another_folder(
    ray_executor: RayExecutor, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary = Vocabulary.load(home / "plain" / "vocabulary-000001.pixnar")
    (tmp_path / "between").mkdir()
    monkeypatch.chdir(home)
    made = os.path.relpath(tmp_path / "made")
    in_shards.build_table(
        "corpus", vocabulary, made, ray_executor, Path(os.path.relpath(tmp_path / "between")), least=1000
    )
    build_table("corpus", vocabulary, tmp_path / "plain")  # a table says what its corpus was called
    assert contents(tmp_path / "made") == contents(tmp_path / "plain")


def test_killed_workers_change_nothing(ray_executor: RayExecutor, home: Path, tmp_path: Path) -> None:
    vocabulary = Vocabulary.load(home / "plain" / "vocabulary-000001.pixnar")
    built = 0
    with killing(3, seed=2, pause=(0.0, 0.1)) as killer:
        while not killer.enough.is_set():
            built += 1
            made = tmp_path / f"made-{built}"
            in_shards.build_table(home / "corpus", vocabulary, made, RayExecutor(2), tmp_path, least=1000)
            assert contents(made) == contents(home / "plain")
    assert len(killer.kills) == 3


def test_what_stops_it_leaves_nothing(home: Path, tmp_path: Path) -> None:
    vocabulary = Vocabulary.load(home / "plain" / "vocabulary-000001.pixnar")
    corpus = write_sharded(tmp_path / "corpus", [("d0", "one"), ("d1", "two"), ("d7", "of nobody")], 5, 2)
    with pytest.raises(CorpusError) as plain:
        build_table(corpus, vocabulary, tmp_path / "made")
    with pytest.raises(CorpusError) as sharded:
        in_shards.build_table(corpus, vocabulary, tmp_path / "made", LocalExecutor(), tmp_path)
    assert str(sharded.value) == str(plain.value)
    trusting = open_corpus(corpus, check_ids=False)
    with pytest.raises(CorpusError, match="names the document 'd7', which is not in the corpus"):
        in_shards.build_table(trusting, vocabulary, tmp_path / "made", LocalExecutor(), tmp_path)
    assert os.listdir(tmp_path) == ["corpus"]
    lenient = open_corpus(corpus, skip_bad_rows=True)
    found = in_shards.build_table(lenient, vocabulary, tmp_path / "made", LocalExecutor(), tmp_path)
    assert (found.pairs, lenient.skipped.total()) == (2, 1)
    with pytest.raises(PixnarError, match="exists"):
        in_shards.build_table(lenient, vocabulary, tmp_path / "made", LocalExecutor(), tmp_path)
