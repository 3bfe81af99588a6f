"""The Hugging Face Hub: its real client talks HTTP to a small hub on this machine."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard, constants

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.index import Index
from pixnar.model.nar import Nar
from tests.helpers.stub_hub import TOKEN, StubHub

QUERY = "balin demor"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StubHub]:
    """A hub, and a client that knows no other, has no token, and keeps its files for this test only."""
    server = StubHub()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    template = "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_STORED_TOKENS_PATH", str(tmp_path / "tokens"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # another protocol for large files, which the stub lacks
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def mine(folder: Path, tmp_path: Path) -> Index:
    """An index that was changed, with everything in its folder that should not be shipped."""
    shutil.copytree(folder, tmp_path / "mine")
    index = Index.load(tmp_path / "mine")
    index.table.add("new", ["entirely new"])
    (index.folder / "work").mkdir()
    (index.folder / "work" / "checkpoint.bin").write_bytes(b"1")
    (index.folder / ".head.pixnar.x.part").write_bytes(b"1")
    (index.folder / "docids" / "docids-000099.pixnar").write_bytes(b"1")
    (index.folder / "notes.txt").write_text("mine")
    return index


def told(error: pytest.ExceptionInfo[PixnarError]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def test_there_and_back(hub: StubHub, mine: Index) -> None:
    address = mine.push_to_hub("me/small", private=True, token=TOKEN, commit_message="First")
    repository = hub.repositories["me/small"]
    assert address == f"{hub.url}/me/small/commit/{repository.sha()}"
    assert repository.private
    assert [message for message, _ in repository.commits] == ["initial commit", "First"]
    up = repository.commits[-1][1]
    listed = {name for name in mine.manifest["files"] if name != "docids/lock"}
    assert set(up) == listed | {"README.md", "manifest.json"}
    assert all(content == (mine.folder / name).read_bytes() for name, content in up.items() if name != "README.md")
    assert hub.large, "large files went another way"
    assert not (mine.folder / "README.md").exists()

    back = Index.from_hub("me/small", token=TOKEN, threads=1)
    assert back.folder.name == repository.sha()
    assert back.ranker.threads == 1
    assert back.verify() > 10
    assert back.search(QUERY, 20) == mine.search(QUERY, 20)
    assert back.search("entirely new", 1)[0].id == "new"


def test_the_card(hub: StubHub, mine: Index) -> None:
    mine.push_to_hub("me/small", token=TOKEN)
    card: Any = ModelCard(hub.repositories["me/small"].commits[-1][1]["README.md"].decode())
    assert card.data.library_name == "pixnar"
    assert "generative-retrieval" in card.data.tags
    assert card.data.base_model is None  # it lies on this machine only
    assert 'pixnar.Index.from_hub("me/small")' in card.text
    assert "| documents | 20 |" in card.text
    assert "min_count = 2" in card.text
    assert str(mine.folder.parent) not in card.content
    assert str(mine.manifest["recipe"]["model"]["encoder"]) not in card.content
    best = max(figures["MRR@10"] for figures in mine.manifest["dev"].values())
    assert f"| {100 * best:.1f} |" in card.text


def test_pushing_again_replaces_what_was_ours(hub: StubHub, mine: Index) -> None:
    mine.push_to_hub("me/small", token=TOKEN)
    first = hub.repositories["me/small"].sha()
    hub.repositories["me/small"].commits[-1][1]["LICENSE"] = b"of the owner"
    mine.table.compact()
    mine.push_to_hub("me/small", token=TOKEN, commit_message="Compacted")
    up = hub.repositories["me/small"].commits[-1][1]
    assert up["LICENSE"] == b"of the owner"
    assert not [name for name in up if "000001" in name and "vocabulary" not in name]
    assert Index.from_hub("me/small").search("entirely new", 1)[0].id == "new"
    old = Index.from_hub("me/small", revision=first)
    assert (old.folder / "docids" / "docids-000001.pixnar").exists()


def test_files_of_others_stay(hub: StubHub, mine: Index) -> None:
    mine.push_to_hub("me/small", token=TOKEN)
    repository = hub.repositories["me/small"]
    repository.commits.append(("Something else", {"encoder/weights.bin": b"1", "model.bin": b"2"}))
    mine.push_to_hub("me/small", token=TOKEN)
    assert {"encoder/weights.bin", "model.bin", "manifest.json"} <= repository.commits[-1][1].keys()


def test_the_cache(hub: StubHub, mine: Index, tmp_path: Path) -> None:
    mine.push_to_hub("me/small", token=TOKEN)
    index = Index.from_hub("me/small")
    assert str(index.folder).startswith(str(tmp_path / "cache"))
    hub.requests.clear()
    Index.from_hub("me/small")
    assert not [one for one in hub.requests if "/resolve/" in one]
    assert str(Index.from_hub("me/small", cache_dir=tmp_path / "other").folder).startswith(str(tmp_path / "other"))
    with pytest.raises(PixnarError, match="its files are links, as in a cache of downloads; work on a copy"):
        index.table.add("d", ["some docid"])
    own = Index.from_hub("me/small", local_dir=tmp_path / "own")
    own.table.add("d", ["some docid"])
    assert Index.load(tmp_path / "own").search("some docid", 1)[0].id == "d"
    hub.ill = True
    assert Index.from_hub("me/small").search(QUERY, 5) == index.search(QUERY, 5)  # from the cache


def test_damage(hub: StubHub, mine: Index) -> None:
    mine.push_to_hub("me/small", token=TOKEN)
    up = hub.repositories["me/small"].commits[-1][1]
    sound = up["lexical.pixnar"]
    up["lexical.pixnar"] = sound[:-1] + b"\x01"
    with pytest.raises(
        FileFormatError, match=r"me/small from the hub: .*lexical.pixnar does not match its checksum"
    ) as caught:
        Index.from_hub("me/small")
    up["lexical.pixnar"] = sound
    shutil.rmtree(re.search("or delete (.*), to download it anew", told(caught))[1])  # type: ignore[index]
    Index.from_hub("me/small")
    path = mine.folder / "lexical.pixnar"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(FileFormatError, match="does not match its checksum"):
        mine.push_to_hub("me/small", token=TOKEN)
    assert len(hub.repositories["me/small"].commits) == 2


def test_errors(hub: StubHub, mine: Index) -> None:
    with pytest.raises(PixnarError, match="no repository me/none on the hub, or a private one: see its name") as caught:
        Index.from_hub("me/none")
    assert "hf auth login" in told(caught)
    with pytest.raises(
        PixnarError, match=r"the hub refuses me/small \(401: .*\): log in with `hf auth login`"
    ) as caught:
        mine.push_to_hub("me/small")
    told(caught)
    with pytest.raises(PixnarError, match="no token for me/small: log in"):
        mine.push_to_hub("me/small", token=True)
    with pytest.raises(PixnarError, match="cannot be the name of a repository: write owner/name"):
        Index.from_hub("a/b/c")
    mine.push_to_hub("me/small", private=True, token=TOKEN)
    with pytest.raises(PixnarError, match="or a private one"):
        Index.from_hub("me/small")
    with pytest.raises(PixnarError, match="me/small has no revision 'v9': give a branch") as caught:
        Index.from_hub("me/small", revision="v9", token=TOKEN)
    told(caught)


def test_repositories_of_something_else(hub: StubHub, mine: Index) -> None:
    mine.push_to_hub("me/small", token=TOKEN)
    commits = hub.repositories["me/small"].commits
    commits.append(("A model", {"model.bin": b"1" * 1000}))
    hub.requests.clear()
    with pytest.raises(PixnarError, match=r"me/small on the hub is no index of pixnar \(manifest.json is missing\)"):
        Index.from_hub("me/small")
    assert not [one for one in hub.requests if "model.bin" in one]
    commits.append(("A web page", {"manifest.json": b"{}"}))
    with pytest.raises(PixnarError, match=r"no index of pixnar \(manifest.json is not of one\)"):
        Index.from_hub("me/small")


def test_without_a_network(hub: StubHub, mine: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))  # nobody listens there
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{unheard.getsockname()[1]}")
        for attempt in (lambda: Index.from_hub("me/small"), lambda: mine.push_to_hub("me/small", token=TOKEN)):
            with pytest.raises(PixnarError, match=r"cannot reach me/small on the hub .*: see your network") as caught:
                attempt()
            told(caught)


def test_the_endpoint_of_the_environment(hub: StubHub, mine: Index, tmp_path: Path) -> None:
    mine.push_to_hub("me/small", token=TOKEN)
    code = "import sys, pixnar; print(pixnar.Index.from_hub('me/small').search('entirely new', 1)[0].id)"
    code += "\nassert 'torch' not in sys.modules"
    environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "PATH": ""}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout == "new\n", done.stderr


def test_a_model(hub: StubHub, mine: Index) -> None:
    model = Nar.from_pretrained(mine.folder / "model")
    model.push_to_hub("me/model", token=TOKEN)
    assert b"library_name: pixnar" in hub.repositories["me/model"].commits[-1][1]["README.md"]
    back = Nar.from_hub("me/model")
    assert (back.query_vectors([QUERY])[0] == model.query_vectors([QUERY])[0]).all()
    with pytest.raises(PixnarError, match=r"me/model on the hub is no index"):
        Index.from_hub("me/model")
    mine.push_to_hub("me/small", token=TOKEN)
    with pytest.raises(PixnarError, match=r"me/small on the hub is no model of pixnar \(model.json is missing\)"):
        Nar.from_hub("me/small")
