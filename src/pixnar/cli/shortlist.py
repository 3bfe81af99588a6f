"""pixnar shortlist: sweep the sizes of the shortlist."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pixnar.base.progress import show_progress
from pixnar.cli.common import JsonFile, app, numbers, write_json
from pixnar.cli.search import IndexPath


@app.command("shortlist")
def shortlist(
    index: IndexPath,
    corpus: Annotated[str, typer.Argument(help="The corpus it was built from: dev judges.")],
    m: Annotated[Sequence[int], numbers("Numbers of lists to learn, separated by commas; none: by size.")] = (),
    r: Annotated[Sequence[int], numbers("Lengths of lists to try; none: by the size of the vocabulary.")] = (),
    k: Annotated[Sequence[int], numbers("Numbers of lists a query takes.")] = (1, 3, 5, 10),
    minutes: Annotated[float, typer.Option(help="Time for learning the lists of each m.")] = 2.0,
    queries: Annotated[int, typer.Option(help="Dev queries to ask.", min=1)] = 300,
    plot: Annotated[Path | None, typer.Option(help="Also draw recall and MRR against size to this PNG.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Sweep m, r and k: recall of needed tokens, MRR@10 against the full softmax, mean size of the shortlist.

    [bold]pixnar shortlist INDEX CORPUS --k 1,3,5 --plot shortlist.png[/bold]
    """
    from pixnar.pipeline.sweep import sweep_index

    with show_progress() as progress:
        rows = sweep_index(
            index,
            corpus,
            ms=m,
            rs=r,
            ks=k,
            minutes=minutes,
            queries=queries,
            plot=plot,
            progress=progress,
        )
    print(rows.text())
    write_json(json_file, rows.to_dict())
