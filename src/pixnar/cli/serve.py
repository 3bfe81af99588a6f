"""pixnar serve and pixnar mcp: an index over HTTP, and as tools for an assistant."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pixnar.base.errors import PixnarError
from pixnar.cli.common import SearchThreads, app
from pixnar.cli.search import IndexPath, Sources


@app.command("serve")
def serve(
    index: IndexPath,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 for every network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0 = any that is free.", min=0, max=65535)] = 8000,
    workers: Annotated[int, typer.Option(help="Queries answered at once; 0 = all cores.", min=0)] = 0,
    batch: Annotated[
        int, typer.Option(help="Queries that a worker takes together; 0 = one on a CPU, 16 with --device.", min=0)
    ] = 0,
    sources: Sources = "all",
    device: Annotated[
        str | None, typer.Option(help="Encode and score through torch on this device, e.g. cuda.")
    ] = None,
    cache: Annotated[
        int, typer.Option(help="Queries whose vectors are remembered: asked again, they are not encoded.", min=0)
    ] = 1000,
    api_keys: Annotated[
        Path | None,
        typer.Option(help="File with an API key on each line, or set PIXNAR_API_KEY; allows live changes."),
    ] = None,
    most_k: Annotated[int, typer.Option(help="Documents that a query may ask for.", min=1)] = 1000,
    query_characters: Annotated[int, typer.Option(help="Length of a query.", min=1)] = 2000,
    body_bytes: Annotated[int, typer.Option(help="Length of a request.", min=100)] = 1 << 20,
    waiting: Annotated[int, typer.Option(help="Queries that may wait; more get 429.", min=1)] = 512,
    wait_ms: Annotated[
        float,
        typer.Option(help="How long a query may have to wait; more get 429. 0 = twice what a query takes.", min=0),
    ] = 0.0,
    timeout: Annotated[float, typer.Option(help="Seconds a request may take.", min=0.1)] = 10.0,
    drain: Annotated[
        float, typer.Option(help="Seconds to answer on after SIGTERM, while /ready says no.", min=0)
    ] = 0.5,
    look: Annotated[
        float, typer.Option(help="Seconds between looks for a new index in the folder; 0 = never.", min=0)
    ] = 1.0,
    access_log: Annotated[bool, typer.Option(help="A log line for each request.")] = True,
    log_queries: Annotated[bool, typer.Option("--log-queries", help="Write what was asked into the log, too.")] = False,
    ray: Annotated[
        bool, typer.Option("--ray", help="Serve through Ray Serve: replicas on many machines, or an index in parts.")
    ] = False,
    replicas: Annotated[
        int, typer.Option(help="With --ray: servers of the index; of one in parts, also of each part.", min=1)
    ] = 1,
    ray_address: Annotated[
        str | None, typer.Option(help="With --ray: a cluster that runs, e.g. auto; without, one is started here.")
    ] = None,
) -> None:
    """Answer searches over HTTP, with a page at / and the API described at /docs.

    [bold]pixnar serve INDEX[/bold]   then open http://127.0.0.1:8000

    A new index in the same folder (pixnar fit --overwrite, pixnar add) is taken up without a request lost.

    [bold]pixnar serve INDEX --ray --replicas 4[/bold]   on Ray; or, what pixnar shard wrote:
    [bold]pixnar serve SHARDS --ray[/bold]
    """
    import os

    from pixnar.serve import Limits, Settings
    from pixnar.serve import serve as run
    from pixnar.serve.server import read_keys

    limits = Limits(
        k=most_k,
        query_characters=query_characters,
        body_bytes=body_bytes,
        waiting=waiting,
        wait_seconds=wait_ms / 1e3,
        timeout_seconds=timeout,
    )
    settings = Settings(
        host=host,
        port=port,
        workers=workers or os.cpu_count() or 1,
        batch=batch,
        sources=sources,
        device=device,
        cache=cache,
        limits=limits,
        keys=read_keys(api_keys),
        drain_seconds=drain,
        look_seconds=look,
        access_log=access_log,
        log_queries=log_queries,
    )
    if ray:
        from pixnar.distributed.serving import Cluster, serve_on_ray

        serve_on_ray(index, settings, Cluster(replicas, ray_address))
        return
    if replicas > 1 or ray_address:
        raise PixnarError("--replicas and --ray-address are for Ray: say --ray, or leave them out")
    if (index / "shards.json").is_file():
        raise PixnarError(f"{index} is an index in parts: say --ray to serve it, or give the whole index")
    run(index, settings)


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
