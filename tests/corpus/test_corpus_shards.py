"""A file cut into shards says what the whole file says, with the same line numbers."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixnar.base.errors import CorpusError
from pixnar.corpus import Skipped, read_texts
from pixnar.corpus.texts import cut_files, shard_texts

lines = st.lists(
    st.sampled_from(
        [b"", b" ", b"\t\r", b"tea", b"a longer line of text", b"\xef\xbb\xbfcoffee", b"\xff\xfe", b"caf\xc3\xa9\r"]
    ),
    max_size=30,
)


@given(lines, st.booleans(), st.integers(1, 9), st.sampled_from([".txt", ".jsonl"]))
def test_shards_add_up_to_the_file(content: list[bytes], ended: bool, parts: int, suffix: str) -> None:
    with TemporaryDirectory() as name:
        file = Path(name, f"names{suffix}")
        if suffix == ".jsonl":
            content = [b'{"docid": "' + line + b'"}' if line.strip() else line for line in content]
        file.write_bytes(b"\n".join(content) + (b"\n" if ended else b""))
        shards = cut_files([file], parts, least=1)
        assert [shard.begin for shard in shards][1:] == [shard.end for shard in shards][:-1]
        counted, added = Skipped(), Skipped()
        whole = list(read_texts(file, skip_bad_rows=True, skipped=counted))
        cut = []
        for shard in shards:
            own = Skipped()
            cut += list(shard_texts(shard, skip_bad_rows=True, skipped=own))
            added.update(own)
        assert cut == whole
        assert added == counted
        assert _complaint(
            lambda: chain(*(shard_texts(shard, skip_bad_rows=False, skipped=Skipped()) for shard in shards))
        ) == (_complaint(lambda: read_texts(file)))


def _complaint(read: Callable[[], Iterable[str]]) -> str:
    try:
        list(read())
    except CorpusError as error:
        return str(error)
    return ""


def test_large_files_are_cut_and_compressed_ones_are_not(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text\n" * 1000)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"other text\n" * 1000))
    (tmp_path / "c.txt").write_bytes(gzip.compress(b"more text\n" * 100_000, 0))
    shards = cut_files([tmp_path / name for name in ("a.txt", "b.txt.gz")], 4, least=100)
    assert [(shard.path.name, shard.whole) for shard in shards] == [("a.txt", False)] * 4 + [("b.txt.gz", True)]
    assert all(abs(shard.end - shard.begin - 2500) <= 20 for shard in shards[:4])
    (packed,) = cut_files([tmp_path / "c.txt"], 4, least=100)
    assert sum(1 for _ in shard_texts(packed, skip_bad_rows=False, skipped=Skipped())) == 100_000
    with pytest.raises(CorpusError, match=r"cannot read .*nowhere\.txt"):
        cut_files([tmp_path / "nowhere.txt"], 2)
