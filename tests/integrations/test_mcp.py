"""The MCP server as a client meets it: a real process, the SDK's own client."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client

from pixnar.index import Index
from tests.test_cli import fails, pixnar

Result = TypeVar("Result")


@pytest.fixture(scope="module")
def home(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy that a test may change while it is served."""
    copy = tmp_path_factory.mktemp("mcp") / "index"
    shutil.copytree(folder, copy)
    return copy


def talk(home: Path, log: Path, conversation: Callable[[ClientSession], Awaitable[Result]]) -> Result:
    async def whole() -> Result:
        arguments = ["-m", "pixnar.cli", "mcp", str(home), "--name", "small"]
        with open(log, "w") as errlog:
            server = stdio_client(StdioServerParameters(command=sys.executable, args=arguments), errlog=errlog)
            async with server as (reading, writing), ClientSession(reading, writing) as session:
                return await conversation(session)

    return asyncio.run(whole())


async def told(session: ClientSession, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = await session.call_tool(tool, arguments)
    assert not answer.is_error, answer
    assert answer.structured_content == json.loads(answer.content[0].text)  # type: ignore[union-attr]
    return dict(answer.structured_content)


async def refused(session: ClientSession, tool: str, **arguments: Any) -> str:
    answer = await session.call_tool(tool, arguments)
    assert answer.is_error
    return str(answer.content[0].text)  # type: ignore[union-attr]


def test_a_conversation(home: Path, tmp_path: Path) -> None:
    index = Index.load(home)

    async def conversation(session: ClientSession) -> None:
        hello = await session.initialize()
        assert hello.server_info.name == "small"
        assert "describe first" in str(hello.instructions)
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert sorted(tools) == ["describe", "explain", "search"]
        assert all(tool.annotations and tool.annotations.read_only_hint and tool.description for tool in tools.values())
        inputs = tools["search"].input_schema
        assert sorted(inputs["properties"]) == ["k", "query", "threshold", "where"]
        assert inputs["required"] == ["query"]
        assert all("description" in one for one in inputs["properties"].values())

        described = await told(session, "describe")
        assert described["documents"] == 20
        assert described["keys"] == {"country": ["de", "fr", "it"], "price": [0.0, 19.0]}
        assert described["dev_figures"] == index.manifest["dev"]
        assert len(described["some_docids"]) == 8

        found = (await told(session, "search", query="balin demor", k=3, where="price < 7"))["hits"]
        hits = index.search("balin demor", 3, where="price < 7")
        assert [(one["doc_id"], one["docid"]) for one in found] == [(hit.id, hit.docid) for hit in hits]
        number = int(hits[0].id[1:])
        assert found[0]["title"] == f"Title {number}"
        assert found[0]["metadata"] == {"country": ("de", "fr", "it")[number % 3], "price": number}
        assert len((await told(session, "search", query="balin"))["hits"]) == 10
        assert (await told(session, "search", query="balin", threshold=1e9))["hits"] == []

        reasons = await told(session, "explain", query="balin demor", k=2)
        assert [one["doc_id"] for one in reasons["hits"]] == [hit.id for hit in index.search("balin demor", 2)]
        assert reasons["hits"][0]["docids"]
        assert "docids" in reasons["hits"][0]["sources"]
        assert len(reasons["expected_phrases"]) == 8

        assert "no document has the key 'colour': use one of 'country', 'price'" in await refused(
            session, "search", query="balin", where='colour = "red"'
        )
        assert "a value is missing after '='" in await refused(session, "explain", query="balin", where="price =")
        assert "greater than or equal to 1" in await refused(session, "search", query="balin", k=0)
        assert "less than or equal to 100" in await refused(session, "search", query="balin", k=101)
        assert "Field required" in await refused(session, "search")

        assert pixnar("add", home, "extra", "kuzon kuzon kuzon").returncode == 0
        (first,) = (await told(session, "search", query="kuzon kuzon kuzon", k=1))["hits"]
        assert first["doc_id"] == "extra"
        assert (await told(session, "describe"))["documents"] == 21

    log = tmp_path / "log"
    talk(home, log, conversation)
    assert "20 documents), waiting for an MCP client" in log.read_text()
    assert "Traceback" not in log.read_text()


def test_standard_output_is_for_the_protocol_only(home: Path) -> None:
    done = pixnar("mcp", home, text="")
    assert (done.returncode, done.stdout) == (0, "")
    assert "waiting for an MCP client" in done.stderr


def test_errors_and_help(tmp_path: Path) -> None:
    fails("manifest.json is missing", "mcp", tmp_path)
    told = " ".join(pixnar("mcp", "--help").stdout.split())
    assert "mcpServers" in told
    assert "pixnar add" in told
