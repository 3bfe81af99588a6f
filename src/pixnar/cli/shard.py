"""pixnar shard: split an index by document, for serving from several processes or machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pixnar.cli.common import Overwrite, Threads, app
from pixnar.cli.search import IndexPath


@app.command("shard")
def shard(
    index: IndexPath,
    out: Annotated[Path, typer.Option("-o", "--output", help="Folder to write the parts to.")],
    parts: Annotated[int, typer.Option(help="How many parts.", min=1)] = 2,
    overwrite: Overwrite = False,
    threads: Threads = 0,
) -> None:
    """Split an index by document into parts that together give the same answers.

    [bold]pixnar shard INDEX -o SHARDS --parts 4[/bold]   then pixnar serve SHARDS --ray

    Each part is an index of its own: its documents, all docids that name them, and what else speaks for them. The
    encoder and the phrase rows are shared (hard links) where the disk allows it.
    """
    from pixnar.base.progress import show_progress
    from pixnar.distributed.shards import split

    with show_progress(transient=True) as progress:
        made = split(index, out, parts, overwrite=overwrite, threads=threads, progress=progress)
    counts = ", ".join(f"{count:,}" for count in made.content["documents"])
    print(f"{out}: {parts} parts of {counts} documents")
