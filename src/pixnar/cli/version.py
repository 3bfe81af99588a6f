"""pixnar version, pixnar --version: which one this is."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated

import typer

from pixnar.cli.common import app


def _tell(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=_tell, is_eager=True)
    ] = False,
) -> None:
    """Generative retrieval in one transformer pass."""


@app.command("version")
def version() -> None:
    """Print the version."""
    print(metadata.version("pixnar"))
