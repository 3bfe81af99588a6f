"""An index on disk, cut, and searched through its parts: every hit is the whole's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pixnar.corpus.records import Document
from pixnar.docids import DocidTable
from pixnar.errors import FileFormatError, PixnarError
from pixnar.index import Index
from pixnar.index.files import DOCIDS
from pixnar.scale.sharded import Sharded
from pixnar.scale.shards import Shards, change, split
from tests.scale.search.conftest import PARTS
from tests.test_cli import fails, pixnar

WISHES: list[dict[str, Any]] = [
    {"k": 10},
    {"k": 1},
    {"k": 100},
    {"k": 5, "where": 'country = "de" or price > 30'},
    {"k": 5, "forbid": [f"d{i:02}" for i in range(0, 40, 2)]},
    {"k": 5, "allow": ["d01", "d07", "d39", "nobody"]},
    {"k": 20, "threshold": 3.0},
]


@pytest.mark.parametrize("sources", ["all", "docids"])
def test_the_parts_answer_as_the_whole(home: Path, texts: list[str], sources: str) -> None:
    whole, parts = Index.load(home / "index", sources=sources), Sharded.open(home / "shards", sources=sources)
    found = 0
    for text in texts[::6] + texts[-8:]:
        for wish in WISHES:
            expected = whole.search(text, **wish)
            assert parts.search(text, **wish) == expected
            found += len(expected)
    assert found > 1000


def test_live_changes(home: Path, texts: list[str], tmp_path: Path) -> None:
    """The same changes to the whole and, each where it belongs, to the parts; the whole cut once more is the same."""
    shutil.copytree(home / "index", tmp_path / "index")
    shutil.copytree(home / "shards", tmp_path / "shards")
    table = DocidTable.open(tmp_path / "index" / DOCIDS)
    docid = texts[-1]  # which names a document
    spelled = [f"New {texts[0]}", docid.upper(), texts[1], texts[2]]
    added = [(f"new{i}", table.encode(text)) for i, text in enumerate(spelled)]
    wish: dict[str, Any] = {
        "add": added,
        "spellings": spelled,
        "remove_documents": ["d03", "d11"],
        "remove_docids": [table.encode(texts[-2])],
        "documents": [Document("new0", "New", "", {"country": "de", "shelf": "high"})],
    }
    table.change(**wish)
    change([DocidTable.open(part / DOCIDS) for part in Shards.open(tmp_path / "shards").parts], **wish)
    split(tmp_path / "index", tmp_path / "again", 2, threads=1)
    whole = Index.load(tmp_path / "index")
    for parts in (Sharded.open(tmp_path / "shards"), Sharded.open(tmp_path / "again")):
        for text in [*spelled, *texts[::15], texts[-2]]:
            for one in ({"k": 7}, {"k": 7, "where": 'shelf = "high" or price < 9'}):
                assert parts.search(text, **one) == whole.search(text, **one)
    assert "new1" in {hit.doc_id for hit in whole.search(docid, 5)}


def test_a_part_is_an_index(home: Path, texts: list[str]) -> None:
    """It can be checked and searched on its own, and its documents score what they score in the whole."""
    whole = Index.load(home / "index", sources="docids")
    seen: set[str] = set()
    for folder in Shards.open(home / "shards").parts:
        part = Index.load(folder, sources="docids")
        assert part.verify() > 5
        scores = {hit.doc_id: hit.score for hit in whole.search(texts[0], 100)}
        mine = part.search(texts[0], 100)
        assert mine
        assert all(scores[hit.doc_id] == hit.score for hit in mine)
        seen |= {hit.doc_id for hit in mine}
    assert seen == set(scores)


def test_errors(home: Path, tmp_path: Path) -> None:
    parts = Sharded.open(home / "shards")
    whole = Index.load(home / "index")
    for where in ("colour = 1", "pric < 3", "price <"):
        told = []
        for one in (whole, parts):
            with pytest.raises(PixnarError) as error:
                one.search("balin", where=where)
            told.append(str(error.value))
        assert told[0] == told[1]
    with pytest.raises(PixnarError, match="fewer parts"):
        split(home / "index", tmp_path / "many", 41)
    with pytest.raises(PixnarError, match="--overwrite"):
        split(home / "index", home / "shards", 2)
    with pytest.raises(PixnarError, match="holds no parts"):
        split(home / "index", home / "index", 2)
    with pytest.raises(FileFormatError, match="pixnar shard"):
        Shards.open(home / "index")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "shards.json").write_text('{"format": "pixnar-shards"}')
    with pytest.raises(FileFormatError, match="damaged"):
        Shards.open(tmp_path / "damaged")
    assert list(tmp_path.iterdir()) == [tmp_path / "damaged"]


def test_command(home: Path, tmp_path: Path) -> None:
    told = pixnar("shard", str(home / "index"), "-o", str(tmp_path / "cut"), "--parts", "2", "--threads", "1")
    assert told.returncode == 0, told
    assert "2 parts of" in told.stdout
    counts = json.loads((tmp_path / "cut" / "shards.json").read_text())["documents"]
    assert sum(counts) == 40
    assert min(counts) > 5
    fails("say --ray", "serve", home / "shards")
    assert len(Shards.open(home / "shards").parts) == PARTS
