"""Damage is an error of one line, at once where that is cheap and else when everything is checked; never a crash."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pixnar.base.errors import PixnarError
from pixnar.corpus import DocidRow, Document, write_corpus
from pixnar.search import Decoder, SlotScores
from pixnar.table import DocidTable, build_table, journal
from pixnar.table.journal import START
from pixnar.vocab import Vocabulary
from tests.helpers.tables import TEXTS, Content, Model, content, small_table, tokens_of, vocabulary

IDS = ("d1", "d2", "d3", "é4", "n0", "n1", "n2")
CONTAINERS = ["table.pixnar", *(f"{part}-000001.pixnar" for part in ("docids", "documents", "spellings", "vocabulary"))]
JOURNAL = "changes-000001.log"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table with changes."""
    made = small_table(tmp_path)
    made.add("n0", ["city break", "Rome"], Document("n0", "New", "", {"country": "at"}))
    made.remove("d3")
    made.add("n1", ["a"])
    return tmp_path / "table"


def states() -> list[Model]:
    """What the table holds after each of its changes."""
    models = [Model()]
    change: dict[str, Any]
    for change in (
        {
            "add": [("n0", tokens_of("city break")), ("n0", tokens_of("rome"))],
            "spellings": ["city break", "Rome"],
            "documents": [Document("n0", "New", "", {"country": "at"})],
        },
        {"remove_documents": ["d3"]},
        {"add": [("n1", tokens_of("a"))], "spellings": ["a"]},
    ):
        models.append(models[-1].copy())
        models[-1].change(**change)
    return models


def refused(path: Path, *, check: bool = False) -> str:
    with pytest.raises(PixnarError) as caught:
        DocidTable.check(path) if check else DocidTable.open(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def flipped(file: Path, places: Iterator[int] | range) -> Iterator[int]:
    """The file with one byte changed, for each of some places, and whole again at the end."""
    sound = file.read_bytes()
    for at in places:
        for bits in (0x01, 0x80, 0xFF):
            file.write_bytes(sound[:at] + bytes([sound[at] ^ bits]) + sound[at + 1 :])
            yield at
    file.write_bytes(sound)


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_byte_of_a_header(table: Path, name: str) -> None:
    file = table / name
    size = int.from_bytes(file.read_bytes()[24:32], "little")
    for at in flipped(file, range(64 + size) if name == "table.pixnar" else range(64)):
        if name.startswith("vocabulary") and not 48 <= at < 56:  # the rest is read when it is needed
            refused(table, check=True)
            with pytest.raises(PixnarError):
                DocidTable.open(table).encode("rome")
        else:
            refused(table)
    DocidTable.check(table)


@pytest.mark.parametrize("name", CONTAINERS[1:])
def test_every_byte_that_is_checked_when_all_is(table: Path, name: str) -> None:
    file = table / name
    rng = random.Random(name)
    for _ in flipped(file, iter(rng.sample(range(64, file.stat().st_size), 150))):
        try:
            DocidTable.check(table)
        except PixnarError as error:
            assert "\n" not in str(error)  # noqa: PT017
            continue
        # Between the parts are zeros that mean nothing.
        assert content(DocidTable.open(table), IDS) == states()[-1].content


@pytest.mark.parametrize("name", [*CONTAINERS, JOURNAL])
def test_missing_truncated_and_foreign_files(table: Path, name: str, tmp_path: Path) -> None:
    file = table / name
    sound = file.read_bytes()
    rng = random.Random(name)
    if name != JOURNAL:
        check = name.startswith("vocabulary")
        for size in [0, 1, 47, 56, 63, 64, len(sound) - 1, *(rng.randrange(len(sound)) for _ in range(20))]:
            file.write_bytes(sound[:size])
            refused(table, check=check)
        file.write_bytes(sound + b"\0")
        refused(table, check=check)
    file.unlink()
    refused(table)
    file.mkdir()
    refused(table)
    file.rmdir()
    for foreign in (b"", b"hello", os.urandom(5000), *(other.read_bytes() for other in table.iterdir())):
        file.write_bytes(foreign)
        refused(table)
    # The file of another table, sound in itself.
    twin = tmp_path / "twin"
    twin.mkdir()
    documents = [Document(f"x{i}", "", "", {}) for i in range(4)]
    write_corpus(twin / "corpus", documents, [DocidRow("x1", text) for text in TEXTS[:6]], [], {})
    other = Vocabulary.build(TEXTS, 650, min_count=1, threads=1)
    build_table(twin / "corpus", other, twin / "table", threads=1).add("x2", ["a"])
    shutil.copy(twin / "table" / name, file)
    refused(table)
    file.write_bytes(sound)
    assert content(DocidTable.check(table), IDS) == states()[-1].content


def test_every_byte_of_the_changes(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_PAUSE", 0.0)
    for at in flipped(table / JOURNAL, range((table / JOURNAL).stat().st_size)):
        assert "copy the table again" in refused(table), at


def test_changes_cut_short_anywhere(table: Path) -> None:
    file = table / JOURNAL
    sound = file.read_bytes()
    possible = [model.content for model in states()]
    seen: list[Content] = []
    for size in range(len(sound) + 1):
        file.write_bytes(sound[:size])
        if size < START:
            refused(table)
            continue
        reader = DocidTable.open(table)
        found = content(reader, IDS)
        if not seen or found != seen[-1]:
            seen.append(found)
        if size % 7 == 0:  # the rest is no trouble to the next change
            reader.add("n2", ["night train"])
            assert content(DocidTable.check(table), IDS) == content(reader, IDS)
            assert reader.named(tokens_of("night train"))[-1] in ("n2", "é4")
    assert seen == possible


def test_changes_whose_end_was_never_written(table: Path) -> None:
    """After a power cut a file may be as long as it should be, with zeros where nothing was written yet."""
    file = table / JOURNAL
    before = file.stat().st_size
    known = states()[-1].content
    opened = DocidTable.open(table)
    opened.change(add=[(f"n{i % 3}", tokens_of(TEXTS[i % 12])) for i in range(2000)])
    after = file.read_bytes()
    pages = [(begin, min(begin + 4096, len(after))) for begin in range(before - before % 4096, len(after), 4096)]
    assert len(pages) > 4
    for begin, end in pages:
        begin = max(begin, before)
        file.write_bytes(after[:begin] + bytes(end - begin) + after[end:])
        assert content(DocidTable.open(table), IDS) == known
    file.write_bytes(after[:before] + bytes(len(after) - before))
    assert content(DocidTable.open(table), IDS) == known
    file.write_bytes(after)
    assert content(DocidTable.open(table), IDS) == content(opened, IDS) != known
    # In the middle zeros are damage: what follows them was written later.
    opened.add("n0", ["cheap hotels"])
    later = file.read_bytes()
    for begin, end in pages:
        begin = max(begin, before)
        file.write_bytes(later[:begin] + bytes(min(end, len(after)) - begin) + later[min(end, len(after)) :])
        refused(table)


def test_changes_belong_where_they_were_made(table: Path) -> None:
    """Changes of an older generation, or in another order, are no changes to this table."""
    file = table / JOURNAL
    old = file.read_bytes()
    opened = DocidTable.open(table)
    opened.compact(threads=1)
    opened.add("n2", ["Rome"])
    (table / "changes-000002.log").write_bytes(old)
    assert "another table" in refused(table)


@pytest.mark.parametrize("seed", range(6))
def test_damage_inside_is_survived(table: Path, seed: int) -> None:
    """Opening reads headers only. Whatever the arrays hold then, there is an answer or an error."""
    rng = random.Random(seed)
    names = [name for name in CONTAINERS if name.startswith(("docids", "documents", "spellings"))]
    size = len(vocabulary())
    scores = SlotScores.sparse([(range(size), np.zeros(size, np.float32))] * 4, ends=[0.0] * 4)
    for _ in range(40):
        file = table / rng.choice(names)
        sound = file.read_bytes()
        data = bytearray(sound)
        start = 64 + int.from_bytes(sound[24:32], "little")
        for _ in range(rng.choice([1, 3, 30])):
            data[rng.randrange(start, len(data))] = rng.choice([0, 1, 0x7F, 0xFF, rng.randrange(256)])
        file.write_bytes(data)
        for act in (
            lambda opened: list(opened),
            lambda opened: [opened.spelling(tokens) for tokens, _ in opened],
            lambda opened: [opened.document(doc_id) for doc_id in IDS],
            lambda opened: opened.snapshot().allowed(where='country = "it" or price < 50'),
            lambda opened: Decoder(opened, slots=4).documents(scores, 5, where="has country").hits,
            lambda opened: Decoder(opened, slots=4, floor=np.full(size, -1.0)).docids(scores, 5).hits,
        ):
            try:
                act(DocidTable.open(table))
            except PixnarError as error:
                assert "\n" not in str(error)  # noqa: PT017
        file.write_bytes(sound)
