"""Vocabulary files: small to open, refused with one clear line when something is wrong."""

from __future__ import annotations

import copy
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pixnar.base.errors import FileFormatError
from pixnar.base.storage import read_container, write_container
from pixnar.vocab import TokenizerVocabulary, Vocabulary, load_vocabulary

DOCIDS = ["cheap flights to rome", "cheap hotels in rome", "flights to rome", "hotels in rome?", "cheap 'n' cheerful"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    Vocabulary.build(DOCIDS, 600, min_count=2).save(tmp_path / "x.vocab")
    return tmp_path / "x.vocab"


def test_round_trip(file: Path) -> None:
    built, loaded = Vocabulary.build(DOCIDS, 600, min_count=2), Vocabulary.load(file)
    assert loaded.meta == built.meta
    assert (loaded.token_counts == built.token_counts).all()
    for text in DOCIDS:
        assert loaded.encode(text).tolist() == built.encode(text).tolist()
    loaded.save(file.with_name("again"))
    assert file.with_name("again").read_bytes() == file.read_bytes()


def test_a_loaded_vocabulary_outlives_its_file(file: Path) -> None:
    loaded = Vocabulary.load(file)
    file.unlink()
    assert loaded.tokens("cheap flights to rome")[-1] == "flights to rome"


def test_damage_is_refused(file: Path) -> None:
    good = file.read_bytes()
    rng = random.Random(0)
    for position in [*range(64), *rng.sample(range(64, len(good)), 300)]:
        bad = bytearray(good)
        bad[position] ^= 1 << rng.randrange(8)
        file.write_bytes(bad)
        if good[position] != 0:  # zeros may be padding
            with pytest.raises(FileFormatError):
                Vocabulary.load(file)
    file.write_bytes(good[: len(good) // 2])
    with pytest.raises(FileFormatError, match="damaged or incomplete"):
        Vocabulary.load(file)


def test_sound_checksums_around_unsound_content(file: Path) -> None:
    """Whatever the arrays say, loading and encoding never crash: it is refused, or it works."""
    good = read_container(file, "vocab", 1)
    rng = np.random.default_rng(0)
    refused, rounds = 0, 400
    worked = 0
    for _ in range(rounds):
        arrays = dict(good.arrays)
        name = str(rng.choice(list(arrays)))
        array = arrays[name].copy()
        if rng.random() < 0.2 or not len(array):
            array = array[: int(rng.integers(0, len(array) + 1))]
        else:
            array[rng.integers(0, len(array), 3)] = rng.integers(0, 2**16, 3).astype(array.dtype)
        arrays[name] = array
        write_container(file, "vocab", 1, good.meta, arrays)
        try:
            loaded = Vocabulary.load(file)
        except FileFormatError as error:
            refused += "\n" not in str(error)
        else:
            worked += 1
            for text in [*DOCIDS, 'a "b" ü']:
                loaded.decode(loaded.encode(text))
    assert refused > 50
    assert refused + worked == rounds


def test_files_that_nobody_read_through(file: Path) -> None:
    """Without `verify` anything may be in the arrays: sizes are checked, and the rest does no harm."""
    whole, quick = Vocabulary.load(file), Vocabulary.load(file, verify=False)
    for text in DOCIDS:
        assert quick.encode(text).tolist() == whole.encode(text).tolist()
    good = file.read_bytes()
    begin = 64 + int.from_bytes(good[24:32], "little")
    rng = np.random.default_rng(1)
    for _ in range(300):
        bad = np.frombuffer(good, np.uint8).copy()
        places = rng.integers(begin, len(bad), 200)
        bad[places] = rng.integers(0, 256, 200)
        file.write_bytes(bad.tobytes())
        try:
            loaded = load_vocabulary(file, verify=False)
        except FileFormatError:
            continue
        for text in [*DOCIDS, 'a "b" ü']:
            found = loaded.encode(text)
            assert (found < len(loaded)).all()
            loaded.decode(found)
            if isinstance(loaded, Vocabulary):
                assert (loaded.ngrams(text) < len(loaded)).all()
        assert all(isinstance(loaded.token(v), str) for v in range(0, len(loaded), 7))
    file.write_bytes(good[:-1])
    with pytest.raises(FileFormatError, match="damaged or incomplete"):
        Vocabulary.load(file, verify=False)


def test_arrays_of_another_type_are_refused(file: Path) -> None:
    good = read_container(file, "vocab", 1)
    for name, array in good.arrays.items():
        other = np.int64 if array.dtype != np.int64 else np.uint8
        write_container(file, "vocab", 1, good.meta, {**good.arrays, name: array.astype(other)})
        with pytest.raises(FileFormatError, match=f"array {name} has the wrong type"):
            Vocabulary.load(file)
    strided = np.repeat(good.arrays["offsets"], 2)[::2]
    with pytest.raises(ValueError, match="array offsets has the wrong type"):
        Vocabulary({**good.arrays, "offsets": strided}, good.meta)


WORKER = """
import multiprocessing, sys
from pixnar.vocab import Vocabulary

def tokens(vocabulary):
    return vocabulary.tokens("cheap flights to rome")

if __name__ == "__main__":
    loaded = Vocabulary.load(sys.argv[1])
    with multiprocessing.get_context(sys.argv[2]).Pool(2) as pool:
        assert pool.map(tokens, [loaded] * 3) == [tokens(loaded)] * 3
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_vocabularies_go_to_worker_processes(file: Path, tmp_path: Path, method: str) -> None:
    # In an interpreter of its own: the one that runs the tests holds other libraries' threads, and a fork of it may
    # wait for ever on a lock that one of them held.
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    subprocess.run([sys.executable, script, file, method], check=True, timeout=60)


def test_a_copied_vocabulary_encodes_alike(file: Path) -> None:
    loaded = Vocabulary.load(file)
    assert copy.deepcopy(loaded).tokens("hotels") == loaded.tokens("hotels")


def test_missing_arrays_are_named(file: Path) -> None:
    good = read_container(file, "vocab", 1)
    for name in good.arrays:
        arrays = {key: array for key, array in good.arrays.items() if key != name}
        write_container(file, "vocab", 1, good.meta, arrays)
        with pytest.raises(FileFormatError, match=f"array {name} is missing"):
            Vocabulary.load(file)


def test_load_any_kind(file: Path, tmp_path: Path) -> None:
    assert isinstance(load_vocabulary(file), Vocabulary)
    TokenizerVocabulary.train_bpe(DOCIDS, 300).save(tmp_path / "bpe.vocab")
    assert isinstance(load_vocabulary(tmp_path / "bpe.vocab"), TokenizerVocabulary)
    write_container(tmp_path / "other", "table", 1, {}, {})
    with pytest.raises(FileFormatError, match="holds a table, not a vocabulary"):
        load_vocabulary(tmp_path / "other")
    with pytest.raises(FileFormatError, match="holds a vocab-tk, not a vocab"):
        Vocabulary.load(tmp_path / "bpe.vocab")
