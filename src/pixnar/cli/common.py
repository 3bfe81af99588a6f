"""Parts shared by the commands: the app, its entry point, help panels, common options and output helpers."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from pixnar.base.errors import PixnarError
from pixnar.base.storage import atomic_write

if TYPE_CHECKING:
    from pixnar.corpus import Skipped

_Function = TypeVar("_Function", bound=Callable[..., Any])
_SETTINGS: dict[str, Any] = {
    "no_args_is_help": True,
    "add_completion": False,
    "rich_markup_mode": "rich",
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
_PANELS = {
    "Start": ("demo", "fit", "search", "serve", "mcp"),
    "Measure": ("evaluate", "compare", "baseline", "bench"),
    "Change": ("add", "remove", "compact", "table", "verify"),
    "Prepare": ("corpus", "docids", "vocab"),
    "Distribute": ("shard", "search-batch", "plan"),
    "Research": ("reproduce", "shortlist"),
}
_PANEL_OF = {name: panel for panel, names in _PANELS.items() for name in names}


def _without_flag_types(params: list[Any]) -> list[Any]:
    """The parameters of a command; its flags are shown without a type, since they take no value."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


class Command(TyperCommand):
    """A command whose help shows flags without a type."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Arguments and options, --help included."""
        return _without_flag_types(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands whose help shows flags without a type."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Options, --help included."""
        return _without_flag_types(super().get_params(ctx))


class _Pixnar(Group):
    """All commands of `pixnar`, in the order of the help panels."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the commands, panel by panel."""
        order = list(_PANEL_OF)
        return sorted(super().list_commands(ctx), key=lambda name: order.index(name) if name in order else len(order))


class App(typer.Typer):
    """A set of commands, each in its panel of the help."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[_Function], _Function]:
        """Register a command, see `typer.Typer.command`."""
        panel = _PANEL_OF.get(name or "") if self is app else None
        return super().command(name, **{"cls": Command, "rich_help_panel": panel} | options)


STANDARD_OUTPUT = Path("-")  # as a file for JSON


def _json_alone(context: typer.Context, path: Path | None) -> Path | None:
    """Keep standard output free for JSON that goes there."""
    if path == STANDARD_OUTPUT:
        context.with_resource(redirect_stdout(io.StringIO()))
    return path


app = App(cls=_Pixnar, **_SETTINGS)

Threads = Annotated[int, typer.Option(help="Worker threads; 0 = all cores.", min=0)]
SearchThreads = Annotated[
    int,
    typer.Option(help="Worker threads; 0 = all cores.", min=0, callback=lambda count: count or os.cpu_count() or 1),
]
Ray = Annotated[bool, typer.Option("--ray", help="Work in shards with Ray (extra scale); the same result.")]
RayWorkers = Annotated[
    int | None, typer.Option("--workers", help="With --ray: jobs at a time; default all processors.", min=1)
]
RayAddress = Annotated[
    str | None, typer.Option("--ray-address", help="With --ray: a cluster that runs; default one started here.")
]
SkipBadRows = Annotated[bool, typer.Option("--skip-bad-rows", help="Skip bad rows and report how many.")]
JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json",
        help="Also write the result to this file as JSON; - : only to standard output (not of a benchmark).",
        callback=_json_alone,
    ),
]
Cache = Annotated[
    Path | None, typer.Option(help="Folder that caches vectors of texts between runs; default: the user's cache.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="One setting of the recipe, e.g. --set train.batch=64; repeatable."),
]
IdColumn = Annotated[str | None, typer.Option("--id", help="Of a table: the column with ids.")]
TitleColumn = Annotated[str | None, typer.Option("--title", help="Of a table: the column with titles.")]
TextColumn = Annotated[str | None, typer.Option("--text", help="Of a table: the column with texts.")]
NameColumns = Annotated[
    str | None,
    typer.Option("--names", help="Of a table: columns with names, separated by commas; cells by ';' or '|'."),
]
CorpusName = Annotated[str, typer.Argument(help="Corpus folder, or irds:ID.")]
BaselineOutput = Annotated[Path, typer.Option("-o", "--output", help="Folder to write.")]
BaselineFields = StrEnum("BaselineFields", "auto docids text both")  # what a baseline is over
EncoderName = Annotated[
    str | None, typer.Option(help="Hugging Face encoder by name or folder; default: that of pixnar fit.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing output.")]


def _table_of(path: Path) -> Path:
    """The docid table of an index, or the table itself."""
    inside = path / "docids"
    return inside if (path / "manifest.json").exists() and inside.is_dir() else path


TablePath = Annotated[
    Path, typer.Argument(help="Index, or docid table: the folder that pixnar fit or table wrote.", callback=_table_of)
]


class BuildByDefault(Group):
    """``pixnar vocab CORPUS …`` means ``pixnar vocab build CORPUS …``, and so does ``pixnar table``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the missing ``build`` in front."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["build", *args]
        return super().parse_args(ctx, args)


def group(name: str, help: str, cls: type[TyperGroup] = Group) -> App:
    """A group of commands, ``pixnar NAME …``; a command that needs none goes straight to ``app``."""
    commands = App(help=help, cls=cls, **_SETTINGS)
    app.add_typer(commands, name=name, rich_help_panel=_PANEL_OF[name])
    return commands


def command_of(function: Callable[..., Any], name: str) -> Any:
    """The command that a function declares by its parameters, apart from all others."""
    alone = App(**_SETTINGS)
    alone.command(name)(function)
    return typer.main.get_command(alone)


def check_ray(ray: bool, workers: int | None, address: str | None) -> None:
    """Refuse options about Ray where there is none."""
    for option, given in (("--workers", workers), ("--ray-address", address)):
        if given is not None and not ray:
            raise typer.BadParameter(f"{option} means nothing without --ray: add it, or leave {option} out")


def number(help: str, least: int = 1) -> Any:
    """An option that takes a whole number, 5e6 as well as 5000000."""

    def parse(text: str | int) -> int:
        found = _parsed(str(text), least)
        if len(found) != 1:
            raise typer.BadParameter(f"{text!r} is not one number: write e.g. 5e6")
        return found[0]

    return typer.Option(parser=parse, metavar="N", help=help)


def numbers(help: str, *names: str, least: int = 1) -> Any:
    """An option that takes whole numbers, separated by commas: 1e6,1e7; an empty text is an empty list."""

    def parse(text: str | Sequence[int]) -> Sequence[int]:
        return _parsed(text, least) if isinstance(text, str) else text

    return typer.Option(*names, parser=parse, metavar="N,N,…", help=help)


def _parsed(text: str, least: int) -> list[int]:
    try:
        values = [float(part) for part in text.split(",")] if text.strip() else []
        found = [int(value) for value in values]
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(f"{text!r} is not a list of numbers: write e.g. 32768,1e6") from error
    if found != values:
        raise typer.BadParameter(f"{text!r}: give whole numbers")
    if min(found, default=least) < least:
        raise typer.BadParameter(f"{text!r}: give numbers of {least} or more")
    return found


def tell_skipped(skipped: Skipped) -> None:
    """Say which rows were left out, if any were."""
    if skipped.total():
        print(skipped.summary(), file=sys.stderr)


def write_json(path: Path | None, content: dict[str, Any]) -> None:
    """Write what a command found, if a file for it was given; `-` is standard output."""
    if path == STANDARD_OUTPUT:
        print(json.dumps(content, indent=1, ensure_ascii=False), file=sys.__stdout__)
    elif path is not None:
        with atomic_write(path) as file:
            file.write(json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n")


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
