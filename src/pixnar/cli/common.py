"""What the commands share: the app they hang on, options, and how they tell."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from pixnar.base.storage import atomic_write

if TYPE_CHECKING:
    from pixnar.corpus import Skipped

_SETTINGS: dict[str, Any] = {
    "no_args_is_help": True,
    "add_completion": False,
    "rich_markup_mode": "rich",
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
app = typer.Typer(**_SETTINGS)

Threads = Annotated[int, typer.Option(help="Worker threads; 0 = all cores.", min=0)]
Ray = Annotated[bool, typer.Option("--ray", help="Work in shards with Ray (extra scale); the same result.")]
RayWorkers = Annotated[
    int | None, typer.Option("--workers", help="With --ray: jobs at a time; default all processors.", min=1)
]
RayAddress = Annotated[
    str | None, typer.Option("--ray-address", help="With --ray: a cluster that runs; default one started here.")
]
SkipBadRows = Annotated[bool, typer.Option("--skip-bad-rows", help="Leave bad rows out and count them.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Also write the figures to this file.")]
Cache = Annotated[
    Path | None, typer.Option(help="Where vectors of texts are kept for the next run; default: the user's cache.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="One setting of the recipe, e.g. --set train.batch=64; repeatable."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]


def _table_of(path: Path) -> Path:
    """The docid table of an index, or the table itself."""
    inside = path / "docids"
    return inside if (path / "manifest.json").exists() and inside.is_dir() else path


TablePath = Annotated[
    Path, typer.Argument(help="Index, or docid table: the folder that pixnar fit or table wrote.", callback=_table_of)
]


class BuildByDefault(TyperGroup):
    """``pixnar vocab CORPUS …`` means ``pixnar vocab build CORPUS …``, and so does ``pixnar table``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the missing ``build`` in front."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["build", *args]
        return super().parse_args(ctx, args)


def group(name: str, help: str, cls: type[TyperGroup] = TyperGroup) -> typer.Typer:
    """A group of commands, ``pixnar NAME …``; a command that needs none goes straight to ``app``."""
    commands = typer.Typer(help=help, cls=cls, **_SETTINGS)
    app.add_typer(commands, name=name)
    return commands


def check_ray(ray: bool, workers: int | None, address: str | None) -> None:
    """Refuse options about Ray where there is none."""
    for option, given in (("--workers", workers), ("--ray-address", address)):
        if given is not None and not ray:
            raise typer.BadParameter(f"{option} means nothing without --ray: add it, or leave {option} out")


def numbers(text: str, option: str) -> list[int]:
    """A list of numbers, separated by commas; an empty text is an empty list."""
    try:
        return [int(part) for part in text.split(",")] if text.strip() else []
    except ValueError as error:
        raise typer.BadParameter(f"{option} {text!r} is no list of numbers: write e.g. 32768,131072") from error


def tell_skipped(skipped: Skipped) -> None:
    """Say which rows were left out, if any were."""
    if skipped.total():
        print(skipped.summary(), file=sys.stderr)


def write_json(path: Path | None, content: dict[str, Any]) -> None:
    """Write what a command found, if a file for it was given."""
    if path is not None:
        with atomic_write(path) as file:
            file.write(json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n")
