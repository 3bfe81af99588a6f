"""pixnar mcp: an index as tools for an assistant."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pixnar.cli.common import SearchThreads, app
from pixnar.cli.search import IndexPath, Sources


@app.command("mcp")
def mcp(
    index: IndexPath,
    name: Annotated[str, typer.Option(help="What the server calls itself.")] = "pixnar",
    sources: Sources = "all",
    threads: SearchThreads = 2,
) -> None:
    """Serve an index to an assistant over MCP, on standard input and output.

    You do not start this yourself: register it with an MCP client, which starts it when it needs it. In most clients
    that is an entry like this in a JSON file of settings (use absolute paths):

    [bold]{"mcpServers": {"icd10": {"command": "/path/to/.venv/bin/pixnar", "args": ["mcp", "/path/to/INDEX"]}}}[/bold]

    The assistant then has three tools: [bold]search[/bold] (query, k, where, threshold), [bold]explain[/bold] (why a
    search finds what it finds) and [bold]describe[/bold] (what the index holds, the keys it can be filtered by). They
    only read. What pixnar add and remove change is seen by the next call. Messages for people go to standard error.
    """
    from pixnar.index import Index
    from pixnar.integrations.mcp import make_server

    opened = Index.load(index, sources=sources, threads=threads, warm_up=True)
    server = make_server(opened, name)
    print(f"pixnar: {index} is open ({opened.table.documents:,} documents), waiting for an MCP client", file=sys.stderr)
    server.run()
