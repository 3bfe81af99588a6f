"""A real server, asked over a real socket."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import re
import socket
import threading
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from pixnar.benchmarks.serve_process import ServeProcess

from pixnar.corpus import Document
from pixnar.index import Index
from pixnar.table import DocidTable
from tests.helpers.fit_corpora import WORDS
from tests.serve.conftest import KEY
from tests.test_cli import fails

QUERIES = ["balin demor", "Rovek!", "nothing of this is known", "fista", "ba"]


def search(server: ServeProcess, **wish: Any) -> dict[str, Any]:
    reply = httpx.post(f"{server.address}/search", json=wish)
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


def refused(reply: httpx.Response, status: int, *words: str) -> None:
    assert reply.status_code == status, reply.text
    line = reply.json()["error"]
    assert "\n" not in line
    for word in words:
        assert word in line, line


def hits(result: dict[str, Any]) -> list[tuple[str, float, str, str]]:
    return [(hit["doc_id"], hit["score"], hit["docid"], hit["title"]) for hit in result["hits"]]


def test_answers_are_the_library_s_own(server: ServeProcess, library: Index) -> None:
    for text in QUERIES:
        line = httpx.get(f"{server.address}/search", params={"q": text, "k": 7}).json()
        assert line["results"][0]["query"] == text
        assert hits(line["results"][0]) == list(map(tuple, library.search(text, 7)))
    many = search(server, query=QUERIES, k=3)
    assert [hits(result) for result in many["results"]] == [
        [tuple(hit) for hit in one] for one in library.search(QUERIES, 3)
    ]
    assert many["microseconds"] > 0


def test_the_longest_address_that_is_allowed_is_read(server: ServeProcess, library: Index) -> None:
    """Twelve bytes a character: more than HTTP parsers take by themselves, who would answer in words of their own."""
    smile = "\U0001f600"
    known = next(iter(library.table.document("d00").metadata))
    where = f'{known} != "{smile * (9_990 - len(known))}"'
    asked = {"q": smile * 2000, "where": where}
    connection = http.client.HTTPConnection(server.address.removeprefix("http://"), timeout=60)
    for changes, status in (({}, 200), ({"q": smile * 2001}, 422), ({"where": where + 10 * " "}, 422)):
        connection.request("GET", f"/search?{urllib.parse.urlencode(asked | changes)}")
        reply = connection.getresponse()
        told = json.loads(reply.read())
        assert (reply.status, reply.headers["content-type"]) == (status, "application/json"), told
    connection.close()


def test_a_hit_says_what_it_is(server: ServeProcess, library: Index) -> None:
    found = search(server, query="balin", k=3)["results"][0]["hits"]
    for hit in found:
        document = library.table.document(hit["doc_id"])
        assert (hit["title"], hit["metadata"]) == (document.title, document.metadata)
        tokens = library.table.encode(hit["docid"])
        assert hit["tokens"] == [library.table.vocabulary.token(v) for v in tokens]


def test_wishes(server: ServeProcess, library: Index) -> None:
    text = "balin demor"
    first = library.search(text, 3)
    some = [hit.id for hit in first]
    assert hits(search(server, query=text, where='country = "de"')["results"][0]) == list(
        map(tuple, library.search(text, where='country = "de"'))
    )
    assert hits(search(server, query=text, forbid=some)["results"][0]) == list(
        map(tuple, library.search(text, forbid=some))
    )
    assert {hit[0] for hit in hits(search(server, query=text, allow=some)["results"][0])} <= set(some)
    assert len(hits(search(server, query=text, threshold=first[1].score, k=40)["results"][0])) < 40
    beam = search(server, query=text, decode="beam", width=5)["results"][0]
    assert hits(beam) == list(map(tuple, library.search(text, beam=5)))


def test_spelling(server: ServeProcess, library: Index) -> None:
    typed, meant = "Balni demmor", "balin demor"
    for wish in ({}, {"explain": True}):
        result = search(server, query=typed, k=3, spelling=True, **wish)["results"][0]
        assert (result["query"], result["corrected"]) == (typed, meant)
        assert hits(result) == list(map(tuple, library.search(meant, 3)))
        result = search(server, query=typed, k=3, spelling=False, **wish)["results"][0]
        assert (result["query"], result["corrected"]) == (typed, None)
        assert hits(result) == list(map(tuple, library.search(typed, 3, spelling=False)))
    line = {"q": typed, "k": "3", "spelling": "true"}
    assert httpx.get(f"{server.address}/search", params=line).json()["results"][0]["corrected"] == meant
    assert search(server, query=meant, spelling=True)["results"][0]["corrected"] is None
    default = search(server, query=typed)["results"][0]["corrected"]
    assert default == (meant if library.manifest["spelling"] else None)


def test_explanations(server: ServeProcess, library: Index) -> None:
    told = search(server, query="balin demor", k=2, explain=True)["results"][0]
    mine = library.explain("balin demor", 2)
    assert told["explanation"].keys() == mine.keys()
    assert told["explanation"]["slots"] == json.loads(json.dumps(mine["slots"]))
    assert search(server, query="balin")["results"][0]["explanation"] is None


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({}, ["query", "required"]),
        ({"query": 3}, ["query", "string"]),
        ({"query": ["a", 3]}, ["query", "string"]),
        ({"query": []}, ["query", "1 to 64"]),
        ({"query": ["a"] * 65}, ["65 queries", "1 to 64"]),
        ({"query": "  "}, ["query", "empty"]),
        ({"query": "x" * 2001}, ["2001 characters", "at most 2000"]),
        ({"query": "x", "k": 0}, ["k", "greater than or equal to 1"]),
        ({"query": "x", "k": 1001}, ["k", "at most 1000"]),
        ({"query": "x", "k": "5"}, ["k", "integer"]),
        ({"query": "x", "k": 10**400}, ["k"]),
        ({"query": "x", "threshold": "high"}, ["threshold", "number"]),
        ({"query": "x", "decode": "slowly"}, ["decode", "'exact' or 'beam'"]),
        ({"query": "x", "width": 5000}, ["width", "at most 1000"]),
        ({"query": "x", "allow": ["d"] * 10_001}, ["allow", "at most 10000"]),
        ({"query": "x", "forbid": "d01"}, ["forbid", "list"]),
        ({"query": "x", "limit": 5}, ["limit", "not permitted"]),
        (["x"], ["body", "object", "application/json"]),
        ({"query": "x", "where": "a = 1 or " * 2000}, ["where", "10000"]),
    ],
)
def test_what_is_wrong_with_a_search(server: ServeProcess, wish: Any, words: list[str]) -> None:
    refused(httpx.post(f"{server.address}/search", json=wish), 422, *words)


def test_filters_that_cannot_be_read(server: ServeProcess) -> None:
    refused(httpx.post(f"{server.address}/search", json={"query": "x", "where": "country ="}), 400, "country")
    refused(httpx.get(f"{server.address}/search", params={"q": "x", "where": "colour = 1"}), 400, "colour", "country")
    refused(httpx.get(f"{server.address}/search"), 422, "q: field required")
    refused(httpx.get(f"{server.address}/search?q=x&limit=5"), 422, "limit")


BODIES = {
    "nothing": b"",
    "half": b'{"query": "x"',
    "no JSON": b"query=x",
    "not a number": b'{"query": "x", "threshold": NaN}',
    "infinity": b'{"query": "x", "threshold": 1e999}',
    "half a pair": b'{"query": "\\ud800"}',
    "half a pair in a list": b'{"query": ["a", "\\udfff"]}',
    "half a pair in a filter": b'{"query": "x", "where": "country = \\"\\ud800\\""}',
    "half a pair in an id": b'{"query": "x", "allow": ["\\ud800"]}',
    "no UTF-8": b'{"query": "\xff\xfe"}',
    "deep": b'{"query": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "many keys": b"{" + b",".join(b'"%d": 1' % i for i in range(50_000)) + b"}",
    "a long number": b'{"query": "x", "k": ' + b"9" * 100_000 + b"}",
    "nulls": b'{"query": null, "k": null}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_bodies_that_are_wrong(server: ServeProcess, body: bytes) -> None:
    reply = httpx.post(f"{server.address}/search", content=body, headers={"content-type": "application/json"})
    assert 400 <= reply.status_code < 500, reply.text
    assert "\n" not in reply.json()["error"]


def test_bodies_that_are_too_long(server: ServeProcess) -> None:
    body = json.dumps({"query": "x" * 10_000_000}).encode()
    long = httpx.post(f"{server.address}/search", content=body)
    refused(long, 413, "1,048,576 bytes")
    assert long.headers["connection"] == "close"

    def parts() -> Any:  # nobody says beforehand how much will come
        for _ in range(200):
            yield b"[" * 10_000

    with contextlib.suppress(httpx.TransportError):  # it may still be sending when the server has had enough
        refused(httpx.post(f"{server.address}/search", content=parts()), 413, "1,048,576 bytes")
    assert httpx.get(f"{server.address}/health").status_code == 200


def test_strange_but_fine(server: ServeProcess, library: Index) -> None:
    for text in ("\0", "🙂", "a\u0301" * 50, "\u202ebalin", "x" * 2000, "' or 1=1", "<script>"):
        found = search(server, query=text)["results"][0]
        assert hits(found) == list(map(tuple, library.search(text)))


def test_addresses_and_methods(server: ServeProcess) -> None:
    refused(httpx.get(f"{server.address}/nothing"), 404, "/docs")
    wrong = httpx.put(f"{server.address}/search", json={})
    refused(wrong, 405, "/docs")
    assert wrong.headers["allow"] == "GET, POST"
    assert httpx.get(f"{server.address}/health").json() == {"status": "ok"}
    assert httpx.get(f"{server.address}/ready").json() == {"status": "ready"}
    for path in ("/", "/health", "/ready", "/search?q=balin"):
        head = httpx.head(f"{server.address}{path}")
        assert (head.status_code, head.content) == (200, b"")
    refused(httpx.get(f"{server.address}/search/?q=x"), 404)
    info = httpx.get(f"{server.address}/info").json()
    assert (info["documents"], info["keys"], info["live_changes"]) == (40, ["country", "price"], False)
    schema = httpx.get(f"{server.address}/openapi.json").json()
    assert set(schema["paths"]) == {"/search", "/docids", "/health", "/ready", "/metrics", "/info"}


def test_pages_need_nobody_else(server: ServeProcess) -> None:
    for path in ("/", "/docs"):
        page = httpx.get(f"{server.address}{path}")
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert "connect-src 'self'" in page.headers["content-security-policy"]
        assert "://" not in page.text.replace("http://www.w3.org/", "")


def test_headers(server: ServeProcess) -> None:
    reply = httpx.get(f"{server.address}/search", params={"q": "x"})
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert "server" not in reply.headers


def test_metrics(server: ServeProcess) -> None:
    search(server, query=["balin", "demor"])
    httpx.get(f"{server.address}/search", params={"q": ""})
    text = httpx.get(f"{server.address}/metrics").text
    figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(figures['pixnar_requests_total{route="/search",status="200"}']) >= 1
    assert float(figures['pixnar_requests_total{route="/search",status="422"}']) >= 1
    for stage in ("wait", "tokenise", "encode", "shortlist", "score", "decode", "map"):
        assert float(figures[f'pixnar_stage_seconds_count{{stage="{stage}"}}']) >= 2, stage
    assert float(figures["pixnar_queue_queries"]) == 0
    assert float(figures["pixnar_errors_total"]) == 0


def test_the_log_has_no_queries_unless_wished(home: Path) -> None:
    with ServeProcess(home / "index") as quiet, ServeProcess(home / "index", "--log-queries") as loud:
        for server in (quiet, loud):
            httpx.get(f"{server.address}/search", params={"q": "a secret wish"})
            httpx.get(f"{server.address}/nothing/a secret wish")
            line = server.wait_for("request", 2)
            assert (line["route"], line["status"]) == ("other", 404)
        assert "secret" not in json.dumps(quiet.log)
        assert quiet.events("request")[0]["queries"] == 1
        assert loud.events("request")[0]["text"] == ["a secret wish"]


def test_live_changes(copy: Path, tmp_path: Path) -> None:
    new = {"documents": [{"doc_id": "new", "docids": ["balin of the east"], "title": "New", "metadata": {"price": 99}}]}
    keys = tmp_path / "keys"
    keys.write_text(f"# for tests\n{KEY}\nanother key, as long\n")
    with ServeProcess(copy, "--api-keys", str(keys)) as server:
        url = f"{server.address}/docids"
        refused(httpx.post(url, json=new), 401, "X-API-Key")
        refused(httpx.post(url, json=new, headers={"X-API-Key": KEY + "x"}), 401)
        refused(httpx.post(url, json=new, headers=[(b"Authorization", "Bearer é".encode())]), 401)
        refused(httpx.delete(url, params={"doc_id": "d01"}), 401)
        refused(httpx.post(url, content=b"{"), 401)  # whoever has no key learns nothing else
        mine = {"X-API-Key": KEY}
        reply = httpx.post(url, json=new, headers=mine)
        assert reply.json()["documents"] == 41
        found = search(server, query="balin of the east", where="price = 99")["results"][0]["hits"]
        assert [(hit["doc_id"], hit["title"]) for hit in found] == [("new", "New")]
        assert Index.load(copy).search("balin of the east", 1)[0].id == "new"  # on disk, too
        hits = search(server, query="east of balin", k=50)["results"][0]["hits"]  # no docid: what all sources say of it
        whole = Index.load(copy).search("east of balin", 50)
        assert [(hit["doc_id"], hit["score"]) for hit in hits] == [(hit.id, hit.score) for hit in whole]
        assert "new" in {hit["doc_id"] for hit in hits[:3]}
        again = {"documents": [{"doc_id": "new", "docids": ["demor again"]}]}
        httpx.post(url, json=again, headers={"Authorization": f"bearer {KEY}"}).raise_for_status()
        assert search(server, query="demor again", k=1)["results"][0]["hits"][0]["title"] == "New"
        gone = httpx.delete(url, params={"doc_id": "new", "docid": "demor again"}, headers=mine)
        assert gone.json()["documents"] == 41
        assert httpx.delete(url, params={"doc_id": "new"}, headers=mine).json()["documents"] == 40
        assert search(server, query="balin of the east", where="price = 99")["results"][0]["hits"] == []
        deep: Any = "x"
        for _ in range(40):
            deep = [deep]
        wrongs: list[Any] = [
            {"documents": [{"doc_id": "d", "docids": ["x"], "metadata": {"a": [float("nan")]}}]},
            {"documents": [{"doc_id": "d", "docids": ["x"], "metadata": {"a": float("inf")}}]},
            {"documents": [{"doc_id": "d", "docids": ["x"], "metadata": {"a": deep}}]},
            {"documents": [{"doc_id": "d", "docids": ["x"], "metadata": {"\ud800": 1}}]},
            {"documents": []},
            {"documents": [{"doc_id": "", "docids": ["x"]}]},
            {"documents": [{"doc_id": "d", "docids": []}]},
            {"documents": [{"doc_id": "d", "docids": ["\ud800"]}]},
            {"documents": [{"doc_id": "d", "docids": ["x"], "metadata": 3}]},
        ]
        for wrong in wrongs:
            body = json.dumps(wrong).encode()
            refused(httpx.post(url, content=body, headers=mine), 422)
        refused(httpx.post(url, json={"documents": [{"doc_id": "d", "docids": [" "]}]}, headers=mine), 422, "docids")
        refused(httpx.delete(url, headers=mine), 422, "nothing to remove")
        assert KEY not in json.dumps(server.log)


def test_live_changes_are_off_without_a_key(server: ServeProcess) -> None:
    refused(httpx.post(f"{server.address}/docids", json={"documents": [{"doc_id": "d", "docids": ["x"]}]}), 403, "off")
    refused(httpx.delete(f"{server.address}/docids", params={"doc_id": "d01"}), 403, "off")


def test_what_cannot_be_served(home: Path, tmp_path: Path) -> None:
    fails("is no index", "serve", tmp_path / "nothing")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        fails("choose another --host or --port", "serve", home / "index", "--port", str(taken.getsockname()[1]))
    fails("cannot read keys", "serve", home / "index", "--api-keys", tmp_path / "nothing")
    (tmp_path / "short").write_text("  # a comment as long as a key\nshort\n")
    fails("API key 1 has less than 16 characters", "serve", home / "index", "--api-keys", tmp_path / "short")
    (tmp_path / "strange").write_text("sixteen or more é characters\n")
    fails("not ASCII", "serve", home / "index", "--api-keys", tmp_path / "strange")


def test_a_slow_sender_is_not_waited_for(home: Path) -> None:
    with ServeProcess(home / "index", "--timeout", "0.5") as server, socket.socket() as slow:
        slow.connect((server.host, server.port))
        slow.sendall(b"POST /search HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        slow.settimeout(10)
        assert slow.recv(1000).startswith(b"HTTP/1.1 408")
        assert search(server, query=WORDS[0])["results"]


def test_a_device_answers_in_batches(home: Path) -> None:
    """Torch on a device takes whatever waits together; here the device is the CPU."""
    there = Index.load(home / "index", device="cpu")
    texts = [f"{one} {other}" for one in WORDS[:8] for other in WORDS[8:16]]
    with ServeProcess(home / "index", "--device", "cpu", "--wait-ms", "20000", "--cache", "0") as server:
        with ThreadPoolExecutor(16) as pool:
            replies = list(pool.map(lambda text: (text, search(server, query=text, k=3)["results"][0]), texts))
        for text, result in replies:
            for mine, theirs in zip(hits(result), there.search(text, 3), strict=True):
                assert mine[0] == theirs.id
                assert mine[1] == pytest.approx(theirs.score, abs=1e-4)
        figures = httpx.get(f"{server.address}/metrics").text
        alone = float(re.search(r'pixnar_batch_queries_bucket{le="1.0"} (\S+)', figures)[1])  # type: ignore[index]
        batches = float(re.search(r"pixnar_batch_queries_count (\S+)", figures)[1])  # type: ignore[index]
        assert alone < batches < len(texts)


def test_changes_at_the_same_time(copy: Path) -> None:
    """What two clients say of one document at once is both said."""
    with ServeProcess(copy, environment={"PIXNAR_API_KEY": KEY}) as server, ThreadPoolExecutor(2) as pool:
        for number in range(20):

            def tell(fact: dict[str, Any], doc_id: str = f"n{number}") -> None:
                wish = {"documents": [{"doc_id": doc_id, "docids": [f"name of {doc_id}"], **fact}]}
                httpx.post(f"{server.address}/docids", json=wish, headers={"X-API-Key": KEY}).raise_for_status()

            list(pool.map(tell, [{"title": "T"}, {"metadata": {"price": 7}}]))
            hit = search(server, query=f"name of n{number}", k=1)["results"][0]["hits"][0]
            assert (hit["doc_id"], hit["title"], hit["metadata"]) == (f"n{number}", "T", {"price": 7})
        twice = [
            {"doc_id": "d00", "docids": ["one"], "title": "U"},
            {"doc_id": "d00", "docids": ["two"], "metadata": {}},
        ]
        wish = {"documents": twice}
        httpx.post(f"{server.address}/docids", json=wish, headers={"X-API-Key": KEY}).raise_for_status()
        hit = search(server, query="two", k=1)["results"][0]["hits"][0]
        assert (hit["doc_id"], hit["title"], hit["metadata"]) == ("d00", "U", {})


def test_a_table_that_another_process_holds(copy: Path) -> None:
    wish = {"documents": [{"doc_id": "d", "docids": ["x"]}]}
    with (
        ServeProcess(copy, environment={"PIXNAR_API_KEY": KEY}) as server,
        open(copy / "docids" / "lock", "ab") as held,
    ):
        fcntl.flock(held, fcntl.LOCK_EX)
        reply = httpx.post(f"{server.address}/docids", json=wish, headers={"X-API-Key": KEY}, timeout=20)
        refused(reply, 503, "try again")
        assert reply.headers["retry-after"] == "1"
        assert str(copy) not in reply.text
        assert "another process" in server.wait_for("change-failed")["reason"]


def test_metadata_that_json_cannot_hold(copy: Path) -> None:
    """A corpus may bring what a request may not."""
    nested: Any = 1
    for _ in range(200):
        nested = [nested]
    facts = {"a": float("nan"), "b": [float("inf"), 1.5], "c": nested}
    DocidTable.open(copy / "docids").add("odd", ["an odd document"], Document("odd", "Odd", "", facts))
    with ServeProcess(copy) as server:
        reply = httpx.get(f"{server.address}/search", params={"q": "an odd document", "k": 1})
        hit = json.loads(reply.text, parse_constant=lambda name: pytest.fail(name))["results"][0]["hits"][0]
        assert hit["doc_id"] == "odd"
        assert hit["metadata"]["a"] is None
        assert hit["metadata"]["b"] == [None, 1.5]


def test_who_asks_for_much_does_not_stand_in_the_way(home: Path) -> None:
    with ServeProcess(home / "index", "--workers", "1", "--cache", "0") as server, ThreadPoolExecutor(1) as pool:
        busy = threading.Event()

        def greedy() -> int:
            answered = 0
            while not busy.is_set():
                reply = httpx.post(f"{server.address}/search", json={"query": WORDS[:64], "k": 10}, timeout=30)
                answered += reply.status_code == 200
            return answered

        many = pool.submit(greedy)
        try:
            time.sleep(0.5)
            with httpx.Client() as client:
                statuses = [
                    client.get(f"{server.address}/search", params={"q": "balin"}).status_code for _ in range(30)
                ]
        finally:
            busy.set()
        assert statuses == [200] * 30
        assert many.result(60) >= 1
