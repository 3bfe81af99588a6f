"""cli: a command line comes in; a call of the room that does the work goes out."""

# A new file registers its commands with `app`, or with a `group` of its own, and gets a line here; `common._PANELS`
# places them in the help.
# Whatever is slow to import is imported inside a command, so that `pixnar --help` stays quick.
from pixnar.cli import (  # noqa: F401, I001
    corpus,
    vocab,
    table,
    fit,
    baseline,
    search,
    serve,
    evaluate,
    research,
)
from pixnar.cli.common import app, main

__all__ = ["app", "main"]
