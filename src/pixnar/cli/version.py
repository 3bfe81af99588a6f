"""pixnar --version, pixnar version: the installed version."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated

import typer

from pixnar.cli.common import app


def _print_version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Generative retrieval in one encoder pass.

    [bold]pixnar demo[/bold]   build and search a demo index

    [bold]pixnar fit CORPUS -o INDEX[/bold]   build an index of your own corpus

    [bold]pixnar search INDEX your query[/bold]
    """


@app.command("version", hidden=True)  # as --version
def version() -> None:
    """Print the version."""
    print(metadata.version("pixnar"))
