"""Entry point of the command line: arguments in, exit code out; and the installed version."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from typing import Annotated, NoReturn

import typer

from pixnar.base.errors import PixnarError
from pixnar.cli.common import app

_STOPPED = 130  # what a shell calls the end by Ctrl-C; typer turns Ctrl-C into an exit with this code
_EXTRAS = dict.fromkeys(("torch", "transformers", "safetensors", "onnx"), "train")  # needed from the first line on


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command line; user errors end with one line and exit code 2, Ctrl-C with 130."""
    try:
        code = app(arguments, standalone_mode=False, prog_name="pixnar")
    except PixnarError as error:
        _fail(str(error))
    except (typer.Abort, KeyboardInterrupt):
        code = _STOPPED
    except typer.Exit as exit_:
        code = exit_.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of our output has gone
        sys.exit(0)
    except (OSError, MemoryError) as error:
        _fail(f"{error.__class__.__name__}: {error}")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        _fail(f"this command needs {package}, which is not installed: pip install 'pixnar[{_EXTRAS[package]}]'")
    except Exception as error:
        if not hasattr(error, "format_message"):  # everything typer raises about wrong usage has it
            raise
        command = getattr(getattr(error, "ctx", None), "command_path", "pixnar")
        if not error.format_message():  # no arguments at all: the help was shown
            sys.exit(2)
        _fail(f"{error.format_message()} (see {command} --help)")
    if code == _STOPPED:
        print("pixnar: stopped; no half-written file is left", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)  # a benchmark returns its figures


def _fail(message: str) -> NoReturn:
    print("pixnar: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(2)


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
