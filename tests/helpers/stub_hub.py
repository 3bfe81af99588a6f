"""As much of the Hugging Face Hub's HTTP as its own client needs to create, commit and download."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = (".pixnar", ".onnx", ".safetensors")  # go through LFS, as binary files do
TOKEN = "hf_of_the_stub"


@dataclass
class Repository:
    """The commits of a repository, oldest first: message and files."""

    private: bool
    commits: list[tuple[str, dict[str, bytes]]] = field(default_factory=lambda: [("initial commit", {})])

    def sha(self, number: int = -1) -> str:
        number %= len(self.commits)
        return hashlib.sha1(f"{number}{self.commits[number][0]}".encode()).hexdigest()

    def at(self, revision: str) -> dict[str, bytes] | None:
        if revision == "main":
            return self.commits[-1][1]
        return next((files for i, (_, files) in enumerate(self.commits) if self.sha(i) == revision), None)


class StubHub(ThreadingHTTPServer):
    """Repositories by name, and every request that came."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Repository] = {}
        self.large: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.ill = False  # answers 500 to everything

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: StubHub

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(b"")

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    do_PUT = do_POST  # noqa: N815

    def _answer(self, body: bytes) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.requests.append(f"{self.command} {path}")
        if self.server.ill:
            return self._json({"error": "ill"}, 500)
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":
            return self._json({"errors": [], "warnings": []})
        if match := re.fullmatch(r"/large/(\w+)", path):
            assert hashlib.sha256(body).hexdigest() == match[1]
            self.server.large[match[1]] = body
            return self._send(b"")
        if match := re.fullmatch(r"/(.+)\.git/info/lfs/objects/batch", path):
            return self._batch(json.loads(body))
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(\w+)/([^/]+))?", path):
            return self._api(match[1], match[2] or "revision", match[3] or "main", body)
        if match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            return self._file(*match.groups())
        return self._json({"error": "not in the stub"}, 501)

    def _create(self, wish: dict[str, Any]) -> None:
        if not self._known:
            return self._json({"error": "Invalid username or password."}, 401)
        name = f"{wish['organization'] or 'me'}/{wish['name']}"
        status = 409 if name in self.server.repositories else 200
        private = bool(wish.get("private")) or wish.get("visibility") == "private"
        self.server.repositories.setdefault(name, Repository(private))
        return self._json({"url": f"{self.server.url}/{name}"}, status)

    def _api(self, name: str, what: str, revision: str, body: bytes) -> None:
        repository = self._repository(name)
        if repository is None:
            return None
        files = repository.at(revision)
        if files is None:
            return self._json({"error": "Invalid rev id"}, 404, **{"X-Error-Code": "RevisionNotFound"})
        sha = repository.sha() if revision == "main" else revision
        if what == "revision":
            return self._json({"id": name, "sha": sha, "siblings": [{"rfilename": path} for path in files]})
        if what == "tree":
            return self._json([{"type": "file", "path": p, "size": len(c), "oid": _oid(c)} for p, c in files.items()])
        if not self._known:
            return self._json({"error": "Unauthorized"}, 401)
        if what == "preupload":
            named = [one["path"] for one in json.loads(body)["files"]]
            mode = {path: "lfs" if path.endswith(LARGE) else "regular" for path in named}
            return self._json({"files": [{"path": p, "uploadMode": mode[p], "shouldIgnore": False} for p in named]})
        assert what == "commit", what
        return self._commit(repository, name, [json.loads(line) for line in body.splitlines()])

    def _commit(self, repository: Repository, name: str, lines: list[dict[str, Any]]) -> None:
        files = dict(repository.commits[-1][1])
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "deletedFile":
                del files[value["path"]]
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.large[value["oid"]]
            else:
                assert line["key"] == "file", line
                files[value["path"]] = base64.b64decode(value["content"])
        repository.commits.append((lines[0]["value"]["summary"], files))
        sha = repository.sha()
        self._json({"commitUrl": f"{self.server.url}/{name}/commit/{sha}", "commitOid": sha, "success": True})

    def _batch(self, wish: dict[str, Any]) -> None:
        objects = []
        for one in wish["objects"]:
            upload = {"upload": {"href": f"{self.server.url}/large/{one['oid']}"}}
            there = one["oid"] in self.server.large
            objects.append({"oid": one["oid"], "size": one["size"]} | ({} if there else {"actions": upload}))
        self._json({"transfer": "basic", "objects": objects})

    def _file(self, name: str, revision: str, path: str) -> None:
        repository = self._repository(name)
        if repository is None:
            return None
        files = repository.at(revision) or {}
        if path not in files:
            return self._json({"error": "Entry not found"}, 404, **{"X-Error-Code": "EntryNotFound"})
        return self._send(files[path], 200, ETag=f'"{_oid(files[path])}"', **{"X-Repo-Commit": revision})

    def _repository(self, name: str) -> Repository | None:
        found = self.server.repositories.get(name)
        if found is None or (found.private and not self._known):
            self._json({"error": "Repository not found"}, 404, **{"X-Error-Code": "RepoNotFound"})
            return None
        return found

    @property
    def _known(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _json(self, content: Any, status: int = 200, **headers: str) -> None:
        self._send(json.dumps(content).encode(), status, **{"Content-Type": "application/json"} | headers)

    def _send(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
