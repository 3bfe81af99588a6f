"""A vocabulary counted in shards is the one that is counted in one place, byte for byte."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pixnar.benchmarks.generate import generate_docids
from pixnar.benchmarks.kill_workers import killing

from pixnar.base.errors import CorpusError, PixnarError, VocabularyError
from pixnar.corpus import Skipped, docid_texts
from pixnar.distributed.cluster import Executor, LocalExecutor, RayExecutor
from pixnar.distributed.vocab import build_vocabulary
from pixnar.vocab import Vocabulary
from pixnar.vocab.phrases import FIXED_TOKENS, PUNCTUATION, BuildOptions
from tests.helpers.shard_corpora import write_sharded
from tests.helpers.vocab_strategies import close_text, nasty_text

docids = st.lists(close_text | nasty_text, max_size=60)
options = st.builds(
    BuildOptions,
    size=st.integers(FIXED_TOKENS, FIXED_TOKENS + 60),
    min_count=st.none() | st.integers(1, 4),
    max_words=st.integers(1, 8),
    weighted=st.booleans(),
    punctuation=st.sampled_from(PUNCTUATION),
    threads=st.just(1),
)


def in_one(texts: list[str], wanted: BuildOptions) -> Vocabulary:
    return Vocabulary.build(
        texts,
        wanted.size,
        min_count=wanted.min_count,
        max_words=wanted.max_words,
        weighted=wanted.weighted,
        punctuation=wanted.punctuation,
        threads=1,
    )


def saved(vocabulary: Vocabulary, folder: Path) -> bytes:
    vocabulary.save(folder / "saved.vocab")
    return (folder / "saved.vocab").read_bytes()


def check_same(texts: list[str], wanted: BuildOptions, files: int, shards: int, least: int, executor: Executor) -> None:
    """Docids in files of JSON lines, cut anywhere, dealt to any number of shards."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        rows = [(f"d{number % 5}", text) for number, text in enumerate(texts) if text.strip() and _speaks(text)]
        corpus = write_sharded(folder / "corpus", rows, 5, files)
        read = list(docid_texts([corpus])[0])
        try:
            expected = in_one(read, wanted)
        except VocabularyError as error:
            with pytest.raises(VocabularyError, match=str(error)[:20]):
                build_vocabulary([corpus], executor, folder, wanted, shards=shards, least=least)
            return
        made = build_vocabulary([corpus], executor, folder, wanted, shards=shards, least=least)
        assert saved(made, folder) == saved(expected, folder)
        assert sorted(path.name for path in folder.iterdir()) == ["corpus", "saved.vocab"]


def _speaks(text: str) -> bool:
    from pixnar.base.normalize import normalize

    return bool(normalize(text))


@settings(max_examples=60)
@given(docids, options, st.integers(1, 4), st.integers(1, 6), st.sampled_from([1, 40, 300, 10**6]))
def test_any_docids_in_any_shards(texts: list[str], wanted: BuildOptions, files: int, shards: int, least: int) -> None:
    check_same(texts, wanted, files, shards, least, LocalExecutor())


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(docids, options, st.integers(1, 3), st.integers(1, 4), st.just(50))
def test_any_docids_by_ray(
    ray_executor: RayExecutor, texts: list[str], wanted: BuildOptions, files: int, shards: int, least: int
) -> None:
    check_same(texts, wanted, files, shards, least, ray_executor)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Query-like docids in five shards."""
    rows = [(f"d{number % 500}", text) for number, text in enumerate(generate_docids(8000))]
    return write_sharded(tmp_path_factory.mktemp("shards") / "corpus", rows, 500, 5)


@pytest.fixture(scope="module")
def expected(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return saved(in_one(list(docid_texts([corpus])[0]), BuildOptions(4096)), tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers(
    ray_executor: RayExecutor, corpus: Path, expected: bytes, tmp_path: Path, workers: int
) -> None:
    made = build_vocabulary([corpus], RayExecutor(workers), tmp_path, BuildOptions(4096), least=1000)
    assert saved(made, tmp_path) == expected


def test_killed_workers_change_nothing(
    ray_executor: RayExecutor, corpus: Path, expected: bytes, tmp_path: Path
) -> None:
    with killing(4, seed=1, pause=(0.0, 0.2)) as killer:
        while not killer.enough.is_set():
            made = build_vocabulary([corpus], RayExecutor(2), tmp_path, BuildOptions(4096), least=1000)
            assert saved(made, tmp_path) == expected
    assert len(killer.kills) == 4
    assert os.listdir(tmp_path) == ["saved.vocab"]


def test_workers_that_work_in_another_folder(
    ray_executor: RayExecutor, corpus: Path, expected: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are told to workers in full: theirs is the folder in which Ray was started."""
    (tmp_path / "mine").symlink_to(corpus)
    (tmp_path / "between").mkdir()
    monkeypatch.chdir(tmp_path)
    made = build_vocabulary(["mine"], ray_executor, Path("between"), BuildOptions(4096), least=1000)
    assert saved(made, tmp_path) == expected


def test_a_folder_of_text_files(corpus: Path, tmp_path: Path) -> None:
    """A folder without a corpus is one of shards, on both paths; blank lines and order count for nothing."""
    texts = list(docid_texts([corpus])[0])[:1000]
    shards = tmp_path / "shards"
    shards.mkdir()
    (shards / "b.txt").write_text("\n\n".join(texts[:600]) + "\n\n")
    (shards / "a.txt").write_text("\n".join(texts[600:]))
    assert sorted(docid_texts([shards])[0]) == sorted(texts)
    made = build_vocabulary([shards], LocalExecutor(), tmp_path, BuildOptions(2048), shards=3, least=500)
    assert saved(made, tmp_path) == saved(in_one(texts, BuildOptions(2048)), tmp_path)


@pytest.mark.parametrize("executor", ["local", "ray"])
def test_bad_rows_are_told_with_their_line(request: Any, executor: str, tmp_path: Path) -> None:
    rows = [(f"d{number % 5}", f"text number {number}") for number in range(400)]
    corpus = write_sharded(tmp_path / "corpus", rows, 5, 1)
    file = corpus / "docids" / "part-00.jsonl"
    lines = file.read_text().splitlines()
    lines[300] = '{"_id": "d9", "docid": "of nobody"}'
    lines[333] = "{"
    file.write_text("\n".join(lines) + "\n\n")
    workers: Executor = request.getfixturevalue("ray_executor") if executor == "ray" else LocalExecutor()
    with pytest.raises(CorpusError) as plain:
        list(docid_texts([corpus])[0])
    with pytest.raises(CorpusError) as sharded:
        build_vocabulary([corpus], workers, tmp_path, least=1000)
    assert ":301: unknown document id 'd9'" in str(plain.value)
    assert str(sharded.value) == str(plain.value)
    skipped = Skipped()
    build_vocabulary([corpus], workers, tmp_path, least=1000, skip_bad_rows=True, skipped=skipped)
    texts, counted = docid_texts([corpus], skip_bad_rows=True)
    assert len(list(texts)) == 398
    assert skipped == counted
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus"]


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PixnarError, match="standard input cannot be cut"):
        build_vocabulary(["-"], LocalExecutor(), tmp_path)
    with pytest.raises(PixnarError, match="no file or folder"):
        build_vocabulary([tmp_path / "nowhere.txt"], LocalExecutor(), tmp_path)
    (tmp_path / "damaged.txt.gz").write_bytes(b"\x1f\x8b and no more")
    with pytest.raises(PixnarError, match="truncated or damaged gzip"):
        build_vocabulary([tmp_path / "damaged.txt.gz"], LocalExecutor(), tmp_path)
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.raises(PixnarError, match="cannot make a scratch folder"):
        build_vocabulary([tmp_path / "a.txt"], LocalExecutor(), tmp_path / "nowhere")
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "damaged.txt.gz"]
