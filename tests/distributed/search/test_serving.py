"""Ray Serve: the answers of a plain server, from replicas and from parts, while some of them are killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pixnar.benchmarks.serve_process import ServeProcess

from pixnar.base.errors import PixnarError
from pixnar.distributed.cluster import RayExecutor
from pixnar.distributed.serving import NAME, Cluster, ShardedBackend, deployed
from pixnar.distributed.shards import Shards, split
from pixnar.index import Index
from pixnar.index.files import DOCIDS
from pixnar.search.types import SearchOptions
from pixnar.serve import Limits, Settings
from pixnar.serve.handlers import Job, answers
from pixnar.serve.server import ApiKeys
from pixnar.table import DocidTable
from tests.distributed.search.conftest import PARTS
from tests.test_cli import fails

KEY = "a key for the tests"
SETTINGS = Settings(
    port=0, workers=2, limits=Limits(wait_seconds=60, timeout_seconds=60), look_seconds=0.2, access_log=False
)


def ask(address: str, body: Any, path: str = "/search", method: str = "POST", **headers: str) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data, {"Content-Type": "application/json", **headers})
    request.method = method
    try:
        with urllib.request.urlopen(request, timeout=90) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        content = error.read()
        return error.code, json.loads(content) if content.startswith(b"{") else content


@pytest.fixture(scope="module")
def told(home: Path, texts: list[str]) -> dict[str, Any]:
    """What a plain server says of each query."""
    index, some = Index.load(home / "index", threads=1), texts[::8] + texts[-5:]
    jobs = [Job(text, SearchOptions(k=5)) for text in some]
    found = answers(index, jobs)
    return {text: json.loads(one) for text, one in zip(some, found, strict=True) if isinstance(one, bytes)}


def loaded(address: str, told: dict[str, Any], kill: Callable[[], None]) -> list[int]:
    """Ask all queries again and again while something is killed; the statuses that were not 200. None is wrong."""
    refused: list[int] = []
    begun = threading.Event()

    def one(text: str) -> None:
        until = time.monotonic() + 60
        while True:
            try:
                status, reply = ask(address, {"query": text, "k": 5})
            except OSError:
                status, reply = 0, None
            if status == 200:
                assert reply["results"] == [told[text]]
                begun.set()
                return
            refused.append(status)
            assert status in (0, 500, 503), (status, reply)
            assert time.monotonic() < until, (status, reply)
            time.sleep(0.1)

    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(one, text) for text in [*told] * 3]
        assert begun.wait(60)
        kill()
        for each in waiting:
            each.result()
    return refused


@pytest.fixture(scope="module")
def parts(home: Path, ray_executor: RayExecutor) -> Iterator[str]:
    with deployed(home / "shards", SETTINGS, Cluster()) as address:
        yield address


def handle(name: str) -> Any:
    from ray import serve

    return serve.get_deployment_handle(name, NAME)


@pytest.mark.timeout(240)
def test_parts_answer_as_a_plain_server(parts: str, told: dict[str, Any]) -> None:
    texts = list(told)
    status, reply = ask(parts, {"query": texts[:40], "k": 5})
    assert status == 200
    assert reply["results"] == [told[text] for text in texts[:40]]
    status, facts = ask(parts, None, "/info", "GET")
    assert (status, facts["documents"], facts["keys"]) == (200, 40, ["country", "price"])
    for body, wanted in (
        ({"query": ""}, 422),
        ({"query": "x", "k": 100_000}, 422),
        ({"query": "x", "where": "colour = 1"}, 400),
        ({"query": "x", "decode": "beam"}, 400),
        ({"query": "x", "explain": True}, 422),
        ([], 422),
    ):
        status, reply = ask(parts, body)
        assert (status, set(reply)) == (wanted, {"error"}), (body, reply)
    assert ask(parts, {"documents": []}, "/docids")[0] == 403
    assert ask(parts, None, "/nowhere", "GET")[0] == 404
    assert ask(parts, None, "/health", "GET") == (200, {"status": "ok"})


@pytest.mark.timeout(240)
def test_a_part_is_killed(parts: str, told: dict[str, Any]) -> None:
    """Its calls wait for the next replica: whoever asks is told nothing of it."""
    process = handle("part-001").facts.remote().result(timeout_s=30)["process"]
    refused = loaded(parts, told, lambda: os.kill(process, signal.SIGKILL))
    assert refused == []
    assert handle("part-001").facts.remote().result(timeout_s=30)["process"] != process


@pytest.mark.timeout(240)
def test_replicas(home: Path, parts: str, told: dict[str, Any], ray_executor: RayExecutor) -> None:
    """One of two is killed: what it was at fails, and may be asked again; the other goes on."""
    from ray import serve

    serve.shutdown()  # type: ignore[no-untyped-call]  # the parts have done their work
    settings = Settings(
        port=0, workers=2, limits=SETTINGS.limits, keys=ApiKeys([KEY]), look_seconds=0.2, access_log=False
    )
    with deployed(home / "index", settings, Cluster(2)) as address:
        seen: set[int] = set()
        while len(seen) < 2:
            seen.add(handle("front").process.remote().result(timeout_s=30))
        status, reply = ask(address, {"query": next(iter(told)), "k": 5, "explain": True})
        assert status == 200, reply
        assert reply["results"][0]["explanation"]["hits"]
        refused = loaded(address, told, lambda: os.kill(min(seen), signal.SIGKILL))
        assert len(refused) < 12
        assert ask(address, {"documents": []}, "/docids")[0] == 401


@pytest.mark.timeout(240)
def test_another_cut_in_the_folder(home: Path, told: dict[str, Any], tmp_path: Path, ray_executor: RayExecutor) -> None:
    """Whoever has opened the old cut goes on with it; once a part of it is lost there is no answer, not a mixed one."""
    shutil.copytree(home / "shards", tmp_path / "shards")
    shutil.copytree(home / "index", tmp_path / "index")
    table, some = DocidTable.open(tmp_path / "index" / DOCIDS), list(told)[:6]
    table.change(add=[(f"new{i}", table.encode(text)) for i in range(9) for text in some])
    settings = Settings(port=0, workers=2, limits=Limits(wait_seconds=60, timeout_seconds=3), look_seconds=0.1)
    cut = Shards.open(tmp_path / "shards").cut
    with deployed(tmp_path / "shards", settings, Cluster()) as address:
        assert split(tmp_path / "index", tmp_path / "shards", PARTS, overwrite=True, threads=1).cut != cut
        time.sleep(1)  # several looks
        for text in some:
            status, reply = ask(address, {"query": text, "k": 5})
            assert (status, reply["results"]) == (200, [told[text]])
        os.kill(handle("part-001").facts.remote().result(timeout_s=30)["process"], signal.SIGKILL)
        until, refused = time.monotonic() + 20, set()
        while time.monotonic() < until:
            for text in some:
                status, reply = ask(address, {"query": text, "k": 5})
                if status == 200:
                    assert reply["results"] == [told[text]]
                else:
                    refused.add((status, reply["error"]))
        assert status != 200
        assert (503, "part 1 of the index does not answer: ask again in a moment") in refused
    with pytest.raises(PixnarError, match="cut again"):
        ShardedBackend(tmp_path / "shards", cut, settings, [])


def test_what_cannot_be_served_is_told_at_once(home: Path, tmp_path: Path) -> None:
    with pytest.raises(PixnarError, match="is no index"):
        deployed(tmp_path, SETTINGS, Cluster())
    with pytest.raises(PixnarError, match="live changes"):
        deployed(home / "shards", Settings(keys=ApiKeys([KEY])), Cluster())
    shutil.copytree(home / "shards", tmp_path / "shards")
    shutil.rmtree(tmp_path / "shards" / "part-002" / DOCIDS)
    with pytest.raises(PixnarError, match="no docid table"):
        deployed(tmp_path / "shards", SETTINGS, Cluster())
    shutil.rmtree(tmp_path / "shards" / "part-002")
    with pytest.raises(PixnarError, match="part-002 is missing"):
        deployed(tmp_path / "shards", SETTINGS, Cluster())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        began = time.monotonic()
        fails(f"cannot serve at 127.0.0.1:{port}: Address", "serve", home / "shards", "--ray", "--port", str(port))
        assert time.monotonic() - began < 60


@pytest.mark.parametrize("address", [None, "auto"])
def test_a_cluster_that_is_too_small(home: Path, ray_executor: RayExecutor, address: str | None) -> None:
    """Ray would wait for more machines, for ever."""
    with pytest.raises(PixnarError, match="--replicas 2 of a front and 3 parts needs 8 processors, Ray has 4"):
        deployed(home / "shards", SETTINGS, Cluster(2, address)).__enter__()


SLOW = """
import os, sys, time

def slow(event, arguments):
    path = str(arguments[0]) if event == "open" else ""
    if path.endswith("part-001/places.pixnar"):
        time.sleep(8)
    if path.endswith("part-000/encoder/encoder.json"):
        os.makedirs(os.path.join(os.environ["STARTED"], str(os.getpid())), exist_ok=True)

sys.addaudithook(slow)
"""


@pytest.mark.timeout(240)
def test_a_part_may_take_longer_to_open_than_a_request_may(home: Path, told: dict[str, Any], tmp_path: Path) -> None:
    """The front waits for it: it does not fail, to be started again until Ray gives it up."""
    (tmp_path / "sitecustomize.py").write_text(SLOW)
    environment = {"PYTHONPATH": str(tmp_path), "STARTED": str(tmp_path / "started")}
    options = ("--ray", "--timeout", "1", "--no-access-log", "--wait-ms", "60000")
    with ServeProcess(home / "shards", *options, environment=environment, patience=180.0) as server:
        started = {int(path.name) for path in (tmp_path / "started").iterdir()} - {server.process.pid}
        assert len(started) == 1
        text = next(iter(told))
        status, reply = ask(server.address, {"query": text, "k": 5})
        assert (status, reply["results"]) == (200, [told[text]])


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seconds", [0.0, 3.0])
def test_the_command_ends_in_order_before_it_serves(home: Path, seconds: float) -> None:
    """SIGTERM while Ray starts, and a little later."""
    command = [sys.executable, "-m", "pixnar.cli", "serve", str(home / "shards"), "--ray", "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    children = Path(f"/proc/{server.pid}/task")
    while server.poll() is None and not any(path.read_text() for path in children.glob("*/children")):
        time.sleep(0.01)
    time.sleep(seconds)
    server.terminate()
    _, errors = server.communicate(timeout=120)
    assert server.returncode == 0, errors
    assert [json.loads(line)["event"] for line in errors.splitlines()][-2:] == ["stopping", "stopped"]


@pytest.mark.timeout(180)
def test_the_command_ends_in_order(home: Path, told: dict[str, Any]) -> None:
    with ServeProcess(home / "index", "--ray", "--no-access-log", patience=120.0) as server:
        text = next(iter(told))
        status, reply = ask(server.address, {"query": text, "k": 5})
        assert (status, reply["results"]) == (200, [told[text]])
        assert server.stop() == 0
    assert [line["event"] for line in server.log if "event" in line][-1] == "stopped"
