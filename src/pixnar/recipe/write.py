"""Writing recipes: from a `Recipe` to TOML, with a description of each setting."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict, fields
from typing import Any

from pixnar.recipe.sections import Recipe

_WIDTH = 100


def to_dict(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """Nested dicts of plain values; `from_dict` takes them back."""
    return asdict(recipe)


def dumps(recipe: Recipe) -> str:
    """The whole recipe as TOML, with comments.

    >>> dumps(Recipe()).splitlines()[1]
    '[vocab]'
    """
    return "\n".join(_section(part.name, getattr(recipe, part.name)) for part in fields(recipe))


def _section(name: str, section: Any) -> str:
    lines = [f"# {section.__doc__}", f"[{name}]"]
    for setting in fields(section):
        lines += textwrap.wrap(setting.metadata["allowed"].about, _WIDTH, initial_indent="# ", subsequent_indent="# ")
        lines.append(f"{setting.name} = {_toml(getattr(section, setting.name))}")
    return "\n".join(lines) + "\n"


def _toml(value: bool | int | float | str) -> str:
    """One value; a TOML string is a JSON string, except for the delete character."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)
