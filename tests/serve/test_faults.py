"""What may happen to a server: signals under load, new indexes, broken ones, and more requests than it can answer."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from pixnar.benchmarks.http_client import Connection, get
from pixnar.benchmarks.serve import Mix, closed, overloaded
from pixnar.benchmarks.serve_process import ServeProcess

from pixnar.base.workdir import swap
from pixnar.corpus import open_corpus
from pixnar.index import Index
from pixnar.table import DocidTable

LOOK = ("--look", "0.1")


class Asking(threading.Thread):
    """Asks a server all the time, until it is told to stop; what it got, and what got lost on the way."""

    def __init__(self, server: ServeProcess, texts: list[str], clients: int = 6) -> None:
        super().__init__(daemon=True)
        self.server, self.texts, self.clients = server, texts, clients
        self.replies: list[tuple[str, dict[str, Any]]] = []
        self.statuses: dict[int, int] = {}
        self.cut: list[str] = []  # requests that began to be answered and were not to the end
        self.unheard = 0  # requests that nobody took
        self.stopped = threading.Event()

    def run(self) -> None:
        asyncio.run(self._all())

    def heard(self, count: int) -> bool:
        """Whether it got more answers than that."""
        return len(self.replies) > count

    async def _all(self) -> None:
        await asyncio.gather(*(self._one(i) for i in range(self.clients)))

    async def _one(self, number: int) -> None:
        connection, place = Connection(self.server.host, self.server.port), number
        while not self.stopped.is_set():
            text = self.texts[place % len(self.texts)]
            place += 1
            try:
                reply = await connection.ask(get("/search", q=text, k=3))
            except asyncio.IncompleteReadError as error:
                if error.partial:
                    self.cut.append(text)
                else:
                    self.unheard += 1
                continue
            except OSError:
                self.unheard += 1
                await asyncio.sleep(0.01)
                continue
            self.statuses[reply.status] = self.statuses.get(reply.status, 0) + 1
            if reply.status == 200:
                self.replies.append((text, reply.json()["results"][0]))
        connection.close()


@contextmanager
def asked(server: ServeProcess, texts: list[str]) -> Iterator[Asking]:
    asking = Asking(server, texts)
    asking.start()
    try:
        yield asking
    finally:
        asking.stopped.set()
        asking.join(30)
        assert not asking.is_alive()


def eventually(what: Callable[[], Any]) -> None:
    until = time.monotonic() + 30
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture(scope="module")
def texts(home: Path) -> list[str]:
    return [query.text for query in open_corpus(home / "index.corpus").queries()]


def test_an_end_under_load_loses_nothing(home: Path, texts: list[str], library: Index) -> None:
    wanted = {text: [tuple(hit) for hit in library.search(text, 3)] for text in texts}
    for _ in range(3):
        server = ServeProcess(home / "index", "--wait-ms", "5000", "--drain", "0.2")
        with asked(server, texts) as asking:
            eventually(partial(asking.heard, 50))
            assert server.stop(signal.SIGTERM) == 0
        assert not asking.cut
        assert set(asking.statuses) == {200}
        told = server.events("stopped")[0]["answered"]
        assert told == {"200": asking.statuses[200]}  # whatever it took in was answered, and its answer arrived
        for text, result in asking.replies:
            assert [(hit["doc_id"], hit["score"], hit["docid"], hit["title"]) for hit in result["hits"]] == wanted[text]


def ask_for_long(address: str) -> None:
    for _ in range(5000):
        httpx.get(address, timeout=2)


def test_a_signal_in_the_middle_of_a_log_line(home: Path) -> None:
    """Nobody reads the log for a while, so a line of it is half written when the signal comes."""
    command = [sys.executable, "-m", "pixnar.cli", "serve", str(home / "index"), "--port", "0", "--drain", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        address = json.loads(process.stderr.readline())["address"]
        with pytest.raises(httpx.TimeoutException):  # when the pipe is full, and the server stands still in its log
            ask_for_long(f"{address}/nothing")
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        lines = process.stderr.read().splitlines()
        assert process.wait(30) == 0
    assert [json.loads(line)["event"] for line in lines if b'"stop' in line] == ["stopping", "stopped"]


def test_a_table_read_anew_by_a_change_is_not_mapped(copy: Path, texts: list[str]) -> None:
    key = {"PIXNAR_API_KEY": "a key for the tests"}
    with ServeProcess(copy, "--look", "0", environment=key) as server:
        table = DocidTable.open(copy / "docids")
        table.add("other", ["of another process"])
        table.compact()
        wish = {"documents": [{"doc_id": "mine", "docids": ["of this one"]}]}
        headers = {"X-API-Key": key["PIXNAR_API_KEY"]}
        httpx.post(f"{server.address}/docids", json=wish, headers=headers).raise_for_status()
        assert ".pixnar" not in Path(f"/proc/{server.process.pid}/maps").read_text()
        for path in (copy / "docids").glob("*.pixnar"):
            emptied(path)
        for text in [*texts[:20], "of another process", "of this one"]:
            assert httpx.get(f"{server.address}/search", params={"q": text}).json()["results"][0]["hits"]


def test_not_ready_while_it_ends(home: Path) -> None:
    server = ServeProcess(home / "index", "--drain", "2")
    with httpx.Client() as client:
        assert client.get(f"{server.address}/ready").status_code == 200
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("stopping")
        reply = client.get(f"{server.address}/ready")
        assert (reply.status_code, reply.headers["retry-after"], reply.headers["connection"]) == (503, "1", "close")
        assert client.get(f"{server.address}/search", params={"q": "balin"}).status_code == 200
    assert server.stop() == 0


def test_after_a_kill_it_serves_at_once(copy: Path) -> None:
    key = {"PIXNAR_API_KEY": "a key for the tests"}
    new = {"documents": [{"doc_id": "new", "docids": ["written before the kill"]}]}
    server = ServeProcess(copy, environment=key)
    httpx.post(f"{server.address}/docids", json=new, headers={"X-API-Key": key["PIXNAR_API_KEY"]}).raise_for_status()
    assert server.stop(signal.SIGKILL) == -signal.SIGKILL
    with ServeProcess(copy) as again:
        found = httpx.get(f"{again.address}/search", params={"q": "written before the kill", "k": 1}).json()
        assert found["results"][0]["hits"][0]["doc_id"] == "new"


def test_a_new_index_is_taken_up_under_load(home: Path, copy: Path, texts: list[str], library: Index) -> None:
    other = Index.load(home / "other", threads=1)
    old = {text: [tuple(hit) for hit in library.search(text, 3)] for text in texts}
    new = {text: [tuple(hit) for hit in other.search(text, 3)] for text in texts}
    assert old != new
    shutil.copytree(home / "other", copy.with_name("index.next"))
    with ServeProcess(copy, *LOOK, "--wait-ms", "5000") as server:
        with asked(server, texts) as asking:
            eventually(partial(asking.heard, 30))
            swap(copy.with_name("index.next"), copy)
            server.wait_for("index-swapped")
            seen = len(asking.replies) + 12  # those under way may still be the old one's
            eventually(partial(asking.heard, seen + 30))
        assert set(asking.statuses) == {200}
        assert (asking.cut, asking.unheard) == ([], 0)
        for place, (text, result) in enumerate(asking.replies):
            found = [(hit["doc_id"], hit["score"], hit["docid"], hit["title"]) for hit in result["hits"]]
            assert found in ([new[text]] if place > seen else [old[text], new[text]])
        assert server.events("index-refused") == []


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def scribbled(path: Path) -> None:
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.seek(size // 2)
        file.write(b"\xa5" * min(64, size - size // 2))


@pytest.mark.parametrize("harm", [Path.unlink, truncated, emptied, scribbled])
def test_broken_files_are_told_and_the_old_index_goes_on(
    copy: Path, texts: list[str], library: Index, harm: Callable[[Path], None]
) -> None:
    wanted = {text: [tuple(hit) for hit in library.search(text, 3)] for text in texts}
    names = [
        "manifest.json",
        "head.pixnar",
        "shortlist.pixnar",
        "encoder/tokenizer.json",
        "docids/docids-000001.pixnar",
    ]
    saved = copy.with_name("saved")
    shutil.copytree(copy, saved)
    with ServeProcess(copy, *LOOK) as server:
        for count, name in enumerate(names, 1):
            harm(copy / name)
            line = server.wait_for("index-refused", count)
            assert Path(name).name in line["reason"] or "no index" in line["reason"]
            assert "goes on" in line["reason"] or "stay in force" in line["reason"]
            for text in texts[:20]:
                result = httpx.get(f"{server.address}/search", params={"q": text, "k": 3}).json()["results"][0]
                rows = [(hit["doc_id"], hit["score"], hit["docid"], hit["title"]) for hit in result["hits"]]
                assert rows == wanted[text]
            swaps = len(server.events("index-swapped"))
            os.utime(saved / name)
            shutil.copy2(saved / name, copy / name)
            if not name.startswith("docids"):
                server.wait_for("index-swapped", swaps + 1)
        assert httpx.get(f"{server.address}/health").status_code == 200


def test_a_folder_that_is_gone(copy: Path, texts: list[str]) -> None:
    with ServeProcess(copy, *LOOK) as server:
        copy.rename(copy.with_name("elsewhere"))
        assert "is no index" in server.wait_for("index-refused")["reason"]
        assert httpx.get(f"{server.address}/search", params={"q": texts[0]}).json()["results"][0]["hits"]
        time.sleep(0.5)
        assert len(server.events("index-refused")) == 1  # told once
        copy.with_name("elsewhere").rename(copy)
        time.sleep(0.5)
        assert httpx.get(f"{server.address}/ready").status_code == 200


def test_docids_that_others_change(copy: Path) -> None:
    with ServeProcess(copy, *LOOK) as server:
        table = DocidTable.open(copy / "docids")
        table.add("new", ["added by another process"])
        server.wait_for("docids-refreshed")
        found = httpx.get(f"{server.address}/search", params={"q": "added by another process", "k": 1}).json()
        assert found["results"][0]["hits"][0]["doc_id"] == "new"
        table.compact()
        server.wait_for("docids-refreshed", 2)
        found = httpx.get(f"{server.address}/search", params={"q": "added by another process", "k": 1}).json()
        assert found["results"][0]["hits"][0]["doc_id"] == "new"
        assert server.events("index-refused") == []


def test_more_than_it_can_answer(home: Path, texts: list[str], library: Index) -> None:
    """A short form of `make soak`: only 429 beside answers, all answers right, memory and patience bounded."""
    mix = Mix(library, texts)
    requests = [request for request, _ in mix.requests]
    with ServeProcess(home / "index", "--cache", "0", "--no-access-log") as server:
        asyncio.run(closed(server, requests, 2, 1.0))
        busy = asyncio.run(closed(server, requests, 4, 1.5))
        told = asyncio.run(overloaded(server, mix, 2 * busy["per_second"], 5.0))
        assert set(told["statuses"]) == {"200", "429"}
        assert told["wrong"] == 0
        assert told["ms"]["worst"] < 2000
        assert told["memory_mb"][-1] < 1.2 * told["memory_mb"][0]
        assert asyncio.run(closed(server, requests, 1, 0.5))["statuses"].keys() == {200}
        assert server.events("error") == []
