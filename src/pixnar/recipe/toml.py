"""Recipes as TOML: read and checked, with errors that name file, setting and remedy; written with descriptions."""

from __future__ import annotations

import difflib
import json
import math
import os
import re
import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import Field, asdict, fields
from importlib import resources
from typing import Any

from pixnar.base.errors import PixnarError
from pixnar.recipe.sections import HUGE, Allowed, Recipe

_KINDS = {"int": "a whole number", "float": "a number", "bool": "a yes or no (true, false)", "str": "a text"}


def find(recipe: str) -> Recipe:
    """A recipe by the path of a TOML file, or by the name of one that pixnar ships.

    >>> find("paper").model.head
    'random'
    """
    shipped = {path.name.removesuffix(".toml"): path for path in resources.files("pixnar.recipes").iterdir()}
    if recipe in shipped and not os.path.isfile(recipe):
        return from_dict(tomllib.loads(shipped[recipe].read_text(encoding="utf-8")), recipe)
    if os.path.isfile(recipe) or os.path.basename(recipe) != recipe or recipe.endswith(".toml"):
        return load(recipe)
    raise PixnarError(f"no recipe {recipe!r}: give one of {', '.join(sorted(shipped))}, or the path of a TOML file")


def load(path: str | os.PathLike[str]) -> Recipe:
    """Read a recipe file; settings that it leaves out keep their defaults."""
    where = os.fspath(path)
    try:
        with open(where, "rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise PixnarError(f"cannot read the recipe {where}: {error.strerror}; give the path of a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PixnarError(f"{where} is not valid TOML: {_one_line(error)}; see recipes/default.toml") from error
    return from_dict(content, where)


def from_dict(content: Mapping[str, Any], where: str = "recipe") -> Recipe:
    """A recipe from nested mappings, such as TOML gives; `where` is for error messages.

    >>> from_dict({"train": {"minutes": 2}}).train.minutes
    2.0
    >>> from_dict({"train": {"minuts": 2}})
    Traceback (most recent call last):
      ...
    pixnar.base.errors.PixnarError: recipe: unknown key train.minuts = 2; did you mean train.minutes?
    """
    sections = _sections()
    read: dict[str, Any] = {}
    for name, values in content.items():
        if name not in sections:
            raise PixnarError(_unknown_section(where, name, values, list(sections)))
        if not isinstance(values, Mapping):
            raise PixnarError(f"{where}: {name} = {_shown(values)} is not a section; write [{name}] and its keys below")
        known = sections[name]
        for key, value in values.items():
            if key not in known:
                raise PixnarError(f"{where}: unknown key {name}.{key} = {_shown(value)}; {_nearest(name, key, known)}")
        read[name] = type(getattr(Recipe, name))(
            **{key: _checked(value, known[key], f"{where}: {name}.{key}") for key, value in values.items()}
        )
    recipe = Recipe(**read)
    _check_ends(recipe, where)
    return recipe


def override(recipe: Recipe, settings: Iterable[str]) -> Recipe:
    """A recipe with some settings changed, as by --set on the command line.

    >>> override(Recipe(), ["train.minutes=2", "model.head=random"]).model.head
    'random'
    """
    content = to_dict(recipe)
    for setting in settings:
        name, equals, text = setting.partition("=")
        section, dot, key = name.strip().partition(".")
        if not equals or not dot:
            raise PixnarError(f"{setting!r} is not a setting: write section.key=value, such as train.minutes=2")
        content.setdefault(section, {})[key] = _value(text.strip())
    return from_dict(content, "settings")


def _check_ends(recipe: Recipe, where: str) -> None:
    """Refuse `ends` where it would do nothing: only slot by slot are ends scored."""
    scoring = recipe.scoring
    if scoring.ends and (scoring.score, scoring.order) != ("probability", "slots"):
        raise PixnarError(
            f'{where}: scoring.ends = true does nothing with score = "{scoring.score}" and order = "{scoring.order}"; '
            'set score = "probability" and order = "slots", or ends = false'
        )


def _sections() -> dict[str, dict[str, Field[Any]]]:
    """The settings of every section, by name."""
    default = Recipe()
    return {
        section.name: {setting.name: setting for setting in fields(getattr(default, section.name))}
        for section in fields(default)
    }


def _value(text: str) -> Any:
    """A TOML value; anything that is not one is taken as text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _checked(value: Any, setting: Field[Any], where: str) -> Any:
    allowed: Allowed = setting.metadata["allowed"]
    kinds = str(setting.type).split(" | ")
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if type(value).__name__ not in kinds and not (is_number and "float" in kinds):
        raise PixnarError(f"{where} = {_shown(value)} is {_kind(value)}; {_remedy(kinds, allowed)}")
    in_range = True
    if is_number:
        in_range = math.isfinite(value) and allowed.low <= value <= allowed.high
        in_range = in_range and not (allowed.above and value == allowed.low)
    elif isinstance(value, str) and allowed.words:
        in_range = value in allowed.words
    elif isinstance(value, str) and allowed.pattern:
        in_range = re.fullmatch(allowed.pattern, value) is not None
    if not in_range:
        raise PixnarError(f"{where} = {_shown(value)} is not possible; {_remedy(kinds, allowed)}")
    return float(value) if "float" in kinds else value


def _remedy(kinds: list[str], allowed: Allowed) -> str:
    ways = []
    if allowed.words:
        ways.append(" or ".join(f'"{word}"' for word in allowed.words))
    if allowed.shape:
        ways.append(allowed.shape)
    number = next((kind for kind in kinds if kind in ("int", "float")), None)
    if number:
        low = f"above {_figure(allowed.low)}" if allowed.above else f"from {_figure(allowed.low)}"
        high = " up" if allowed.high >= HUGE else f" to {_figure(allowed.high)}"
        ways.append(f"{_KINDS[number]} {low}{high}")
    return "give " + (" or ".join(ways) or _KINDS[kinds[0]])


def _figure(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:g}"


def _kind(value: Any) -> str:
    kind = type(value).__name__
    return _KINDS.get(kind) or {"list": "a list", "dict": "a section"}.get(kind, f"a {kind}")


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return " ".join(text.split()) if len(text) <= 60 else " ".join(text[:57].split()) + "…"


def _unknown_section(where: str, name: str, value: Any, sections: list[str]) -> str:
    if isinstance(value, Mapping):
        near = difflib.get_close_matches(name, sections, 1)
        advice = f"did you mean [{near[0]}]?" if near else f"there are {', '.join(f'[{s}]' for s in sections)}"
        return f"{where}: unknown section [{name}]; {advice}"
    home = [section for section, settings in _sections().items() if name in settings]
    advice = f"it belongs under [{home[0]}]" if home else "every key belongs under a section such as [train]"
    return f"{where}: {name} = {_shown(value)} stands outside all sections; {advice}"


def _nearest(section: str, key: str, known: Iterable[str]) -> str:
    known = list(known)
    near = difflib.get_close_matches(key, known, 1)
    if near:
        return f"did you mean {section}.{near[0]}?"
    home = [section for section, settings in _sections().items() if key in settings]
    return f"it belongs under [{home[0]}]" if home else f"[{section}] has {', '.join(known)}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


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
