"""pixnar demo: the first five minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pixnar.cli.common import Threads, app
from pixnar.progress import show_progress


@app.command("demo")
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to work in.")] = Path("demo"),
    minutes: Annotated[float, typer.Option(help="Time for training the model.", min=0.01)] = 1.0,
    threads: Threads = 0,
) -> None:
    """From nothing to an index that answers, on the demo corpus; what is there from an earlier run is reused."""
    from pixnar.demo import run_demo

    with show_progress() as progress:
        run_demo(output, minutes=minutes, threads=threads, progress=progress)
