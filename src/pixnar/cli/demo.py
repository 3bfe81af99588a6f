"""pixnar demo: build, search and compare a demo index."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pixnar.base.progress import show_progress
from pixnar.cli.common import Threads, app


@app.command("demo")
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to work in.")] = Path("demo"),
    minutes: Annotated[float, typer.Option(help="Most time for training the model.", min=0.01)] = 1.5,
    queries: Annotated[int, typer.Option(help="Held-out terms that are asked for the figures.", min=1)] = 500,
    threads: Threads = 0,
) -> None:
    """Build a demo index of ICD-10-CM codes, search it, and compare it with BM25, dense retrieval and hybrids.

    A second run reuses what the first one built.

    [bold]pixnar demo[/bold]   then pixnar search demo/index heart attack
    """
    from pixnar.research.demo import run_demo

    with show_progress(transient=True) as progress:
        run_demo(output, minutes=minutes, queries=queries, threads=threads, progress=progress)
