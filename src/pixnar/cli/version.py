"""pixnar version: which one this is."""

from __future__ import annotations

from importlib import metadata

from pixnar.cli.common import app


@app.command("version")
def version() -> None:
    """Print the version."""
    print(metadata.version("pixnar"))
