"""An index on disk, cut, and searched through its parts: every hit is the whole's."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.corpus.queries import Perturbation
from pixnar.corpus.records import Document
from pixnar.distributed.sharded import Sharded, ShardServer
from pixnar.distributed.shards import Shards, change, split
from pixnar.index import Index
from pixnar.index.files import DOCIDS
from pixnar.table import DocidTable
from pixnar.table.table import part_of
from tests.distributed.search.conftest import PARTS
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
    assert "new1" in {hit.id for hit in whole.search(docid, 5)}


def test_spelling(home: Path, texts: list[str], tmp_path: Path) -> None:
    """Parts correct a query as the whole does, also by words of docids that were added to any of them."""
    shutil.copytree(home / "index", tmp_path / "index")
    shutil.copytree(home / "shards", tmp_path / "shards")
    table = DocidTable.open(tmp_path / "index" / DOCIDS)
    spelled = ["quuzle xeno", "quuzla", "balinx"]
    wish: dict[str, Any] = {"add": [(f"new{i}", table.encode(text)) for i, text in enumerate(spelled)]}
    wish["spellings"] = spelled
    table.change(**wish)
    change([DocidTable.open(part / DOCIDS) for part in Shards.open(tmp_path / "shards").parts], **wish)
    whole, parts = Index.load(tmp_path / "index"), Sharded.open(tmp_path / "shards")
    typo = Perturbation(typos=1)
    asked = ["quuzl", "qquuzla xeon", "balinx", "balniz", *(typo.apply(text, text) for text in texts[::15])]
    for text in asked:
        assert parts.index.asked(text, True) == whole.asked(text, True)
        for spelling in (True, False, None):
            assert parts.search(text, 5, spelling=spelling) == whole.search(text, 5, spelling=spelling)
    assert [whole.asked(text, True) for text in asked[:3]] == ["quuzla", "quuzla xeno", "balinx"]


@pytest.fixture(scope="module")
def cuts(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`changed`, the index with one docid more, in as many parts as `shards`; `two`, the index in two parts."""
    folder = tmp_path_factory.mktemp("cuts")
    shutil.copytree(home / "index", folder / "index")
    DocidTable.open(folder / "index" / DOCIDS).add("new", ["balin dwalin"])
    split(folder / "index", folder / "changed", PARTS, threads=1)
    split(home / "index", folder / "two", 2, threads=1)
    return folder


def test_a_cut_has_a_name(home: Path, cuts: Path, tmp_path: Path) -> None:
    """It is that of the index as it was, and of the number of parts: whoever cuts the same gets parts that fit."""
    cut = Shards.open(home / "shards").cut
    assert split(home / "index", tmp_path / "again", PARTS, threads=1).cut == cut
    assert len({cut, Shards.open(cuts / "changed").cut, Shards.open(cuts / "two").cut}) == 3


def replace(target: Path, source: Path) -> None:
    shutil.rmtree(target)
    shutil.copytree(source, target)


def swap(shards: Path, cuts: Path) -> None:
    (shards / "part-000").rename(shards / "aside")
    (shards / "part-001").rename(shards / "part-000")
    (shards / "aside").rename(shards / "part-001")


def say(**more: Any) -> Callable[[Path, Path], None]:
    def tamper(shards: Path, cuts: Path) -> None:
        path = shards / "shards.json"
        content = json.loads(path.read_text()) | more
        path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))

    return tamper


TAMPERED: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "a part of a changed index": (
        lambda shards, cuts: replace(shards / "part-001", cuts / "changed" / "part-001"),
        "part-001 is not part 1 of the 3",
    ),
    "a part of another cut": (
        lambda shards, cuts: replace(shards / "part-001", cuts / "two" / "part-001"),
        "part-001 is not part 1 of the 3",
    ),
    "swapped parts": (swap, "part-000 is not part 0 of the 3"),
    "docids of another part": (
        lambda shards, _: replace(shards / "part-002" / DOCIDS, shards / "part-001" / DOCIDS),
        "docids is not part 2 of the 3",
    ),
    "a part less": (say(parts=["part-000", "part-001"]), "part-000 is not part 0 of the 2"),
    "a part twice": (say(parts=["part-000", "part-001", "part-001"]), "part-001 is not part 2 of the 3"),
    "no parts": (say(parts=[]), "it names no parts"),
    "a part is gone": (lambda shards, _: shutil.rmtree(shards / "part-001"), "part-001 is missing"),
    "no name of the cut": (say(cut=None), "does not say which cut"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_parts_that_do_not_belong_together(home: Path, cuts: Path, tmp_path: Path, what: str) -> None:
    """They would answer, and wrongly."""
    shutil.copytree(home / "shards", tmp_path / "shards")
    Sharded.open(tmp_path / "shards")
    tamper, told = TAMPERED[what]
    tamper(tmp_path / "shards", cuts)
    with pytest.raises(FileFormatError) as error:
        Sharded.open(tmp_path / "shards")
    assert told in str(error.value)
    assert str(error.value).endswith("cut the index again with pixnar shard --overwrite")
    assert "\n" not in str(error.value)


def test_a_cut_that_is_replaced_while_in_use(home: Path, cuts: Path, tmp_path: Path) -> None:
    """What is open goes on as it is; what is opened later must be of the same cut."""
    shutil.copytree(home / "shards", tmp_path / "shards")
    shards = Shards.open(tmp_path / "shards")
    table = shards.table(0)
    documents = table.documents
    split(cuts / "index", tmp_path / "shards", PARTS, overwrite=True, threads=1)
    with pytest.raises(PixnarError, match="another cut now"):
        table.refresh()
    assert table.documents == documents
    with pytest.raises(PixnarError, match="part-000 is not part 0"):
        ShardServer.open(shards, 0)
    with pytest.raises(PixnarError, match="cut again since"):
        Sharded.open(tmp_path / "shards", cut=shards.cut)
    assert Sharded.open(tmp_path / "shards").search("balin dwalin", 1)[0].id == "new"


def test_a_document_is_added_to_its_part_only(home: Path, tmp_path: Path) -> None:
    """A filter by ids asks each part for its own: a document elsewhere would be forbidden in vain."""
    shutil.copytree(home / "shards", tmp_path / "shards")
    shards = Shards.open(tmp_path / "shards")
    mine, other = (next(f"z{i}" for i in range(99) if part_of(f"z{i}", PARTS) == part) for part in (0, 1))
    fails(f"document {other!r} belongs to part 1 of 3", "add", shards.parts[0], other, "balin dwalin")
    fails("belongs to part 1", "add", shards.parts[0], other, "--title", "Elsewhere")
    assert pixnar("add", shards.parts[0], mine, "balin dwalin").returncode == 0
    shards.table(0).compact(threads=1)
    fails("belongs to part 1", "add", shards.parts[0], other, "balin dwalin")
    assert pixnar("add", shards.parts[1], other, "balin dwalin").returncode == 0
    parts = Sharded.open(tmp_path / "shards")
    assert {mine, other} <= {hit.id for hit in parts.search("balin dwalin", 5)}
    assert {mine, other}.isdisjoint(hit.id for hit in parts.search("balin dwalin", 50, forbid=[mine, other]))
    tables = [shards.table(number) for number in (1, 0, 2)]
    with pytest.raises(PixnarError, match="in their order"):
        change(tables, remove_documents=[mine])


def test_parts_rank_by_the_composed_score_as_the_whole_does(home: Path, texts: list[str], tmp_path: Path) -> None:
    """Scores to the last bit: as it was cut, with live additions, and after either was compacted, or cut once more."""
    shutil.copytree(home / "index", tmp_path / "index")
    shutil.copytree(home / "shards", tmp_path / "shards")
    shards = Shards.open(tmp_path / "shards")
    added: list[tuple[str, tuple[int, ...]]] = []

    def same(parts: Path = tmp_path / "shards") -> None:
        for sources in ("docids", "all"):
            whole, cut = Index.load(tmp_path / "index", sources=sources), Sharded.open(parts, sources=sources)
            assert whole.ranker.scorer.rule.score == "composed"
            assert whole.ranker.factors is not None
            for text in texts[::30]:
                assert cut.search(text, 7) == whole.search(text, 7)
            for doc_id, tokens in added:  # longer or shorter than any that the factors were made for
                text = whole.table.spellings([tokens])[0]
                assert doc_id in {hit.id for hit in whole.search(text, 3)}
                assert cut.search(text, 3) == whole.search(text, 3)

    same()
    table = DocidTable.open(tmp_path / "index" / DOCIDS)
    words = sorted({word for text in texts for word in text.split()})
    added += [(f"new{i}", table.encode(" ".join(words[i : i + n]))) for i, n in enumerate((1, 2, 5, 9))]
    gone = Index.load(tmp_path / "index").search(texts[0], 1)[0].id
    table.change(add=added, remove_documents=[gone])
    change([shards.table(number) for number in range(PARTS)], add=added, remove_documents=[gone])
    same()
    table.compact(threads=1)
    same()
    for number in range(PARTS):
        shards.table(number).compact(threads=1)
    same()
    split(tmp_path / "index", tmp_path / "again", 2, threads=1)
    same(tmp_path / "again")


def test_a_part_is_an_index(home: Path, texts: list[str]) -> None:
    """It can be checked and searched on its own, and its documents score what they score in the whole."""
    whole = Index.load(home / "index", sources="docids")
    seen: set[str] = set()
    for folder in Shards.open(home / "shards").parts:
        part = Index.load(folder, sources="docids")
        assert part.verify() > 5
        scores = {hit.id: hit.score for hit in whole.search(texts[0], 100)}
        mine = part.search(texts[0], 100)
        assert mine
        assert all(scores[hit.id] == hit.score for hit in mine)
        seen |= {hit.id for hit in mine}
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
    with pytest.raises(PixnarError, match="at most one for each document"):
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


def test_what_a_kill_leaves_is_cleared(home: Path, tmp_path: Path) -> None:
    """By the next run, but for what a process that runs is at."""
    command = ("shard", str(home / "index"), "-o", str(tmp_path / "cut"), "--parts", "20", "--threads", "1")
    killed = subprocess.Popen([sys.executable, "-m", "pixnar.cli", *command])
    until = time.monotonic() + 60
    while not (left := list(tmp_path.iterdir())) and time.monotonic() < until:
        time.sleep(0.001)
    killed.kill()
    killed.wait()
    assert [path.name for path in left] == [f".cut.{socket.gethostname()}-{killed.pid}.part"]
    others = tmp_path / f".cut.{socket.gethostname()}-1.part"
    others.mkdir()
    assert left[0].is_dir()
    replaced = tmp_path / f".cut.replaced-{killed.pid}"  # all that there is of the folder, if it was killed in between
    replaced.mkdir()
    assert pixnar(*command).returncode == 0
    assert set(tmp_path.iterdir()) == {others, replaced, tmp_path / "cut"}
    assert pixnar(*command, "--overwrite").returncode == 0
    assert set(tmp_path.iterdir()) == {others, tmp_path / "cut"}


def test_command(home: Path, tmp_path: Path) -> None:
    told = pixnar("shard", str(home / "index"), "-o", str(tmp_path / "cut"), "--parts", "2", "--threads", "1")
    assert told.returncode == 0, told
    assert "2 parts of" in told.stdout
    counts = json.loads((tmp_path / "cut" / "shards.json").read_text())["documents"]
    assert sum(counts) == 40
    assert min(counts) > 5
    fails("say --ray", "serve", home / "shards")
    assert len(Shards.open(home / "shards").parts) == PARTS
