"""The order of rooms: a room imports only from rooms above it in the list, and torch only below the line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "pixnar"
ABOVE = ("base", "recipe", "corpus", "vocab", "documents", "table", "scoring", "runtime", "fusion", "search", "index")
TORCH = ("model", "train")
LEAVES = ("docid_generation", "evaluation", "pipeline", "serve", "distributed", "integrations", "research", "cli")
ROOMS = (*ABOVE, *TORCH, *LEAVES)
"""A room may import from those before it. From ABOVE, nothing imports torch."""

EXCEPTIONS = {
    ("index/on_device.py", "model"): "an index on a GPU: imported only when a device is given",
}
TORCH_ABOVE = {"index/on_device.py", "base/progress.py"}  # the latter quietens transformers where it is imported


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, also inside functions; names of a package as modules of it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def test_the_list_has_every_room() -> None:
    assert sorted(ROOMS) == sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))
    assert len(ROOMS) <= 21


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_from_rooms_before_it(room: str) -> None:
    wrong = []
    for path in sorted((SOURCE / room).rglob("*.py")):
        place = path.relative_to(SOURCE).as_posix()
        for module in imports(path):
            parts = module.split(".")
            if parts[0] != "pixnar" or len(parts) < 2 or parts[1] in ("_native", "__version__", room):
                continue
            known = parts[1] in ROOMS and ROOMS.index(parts[1]) < ROOMS.index(room)
            if not known and (place, parts[1]) not in EXCEPTIONS:
                wrong.append(f"{place} imports {module}")
    assert not wrong


def test_exceptions_are_needed() -> None:
    for place, room in EXCEPTIONS:
        assert any(module.startswith(f"pixnar.{room}") for module in imports(SOURCE / place)), place


def test_torch_stays_below_the_line() -> None:
    wrong = [
        place
        for path in files()
        if (place := path.relative_to(SOURCE).as_posix()).split("/")[0] in ABOVE
        and place not in TORCH_ABOVE
        and any(module.split(".")[0] in ("torch", "transformers") for module in imports(path))
    ]
    assert not wrong


def cycles(graph: dict[str, set[str]]) -> list[str]:
    """The modules that import each other in a circle."""
    while free := [name for name, used in graph.items() if not used & graph.keys()]:
        for name in free:
            del graph[name]
    return sorted(graph)


def test_no_module_imports_itself_by_way_of_others() -> None:
    """At import time: what is inside functions or for type checkers only does not count."""
    names = {".".join(("pixnar", *path.relative_to(SOURCE).with_suffix("").parts)): path for path in files()}
    graph: dict[str, set[str]] = {}
    for name, path in names.items():
        body = ast.parse(path.read_text(encoding="utf-8")).body
        found = set()
        for node in body:
            if isinstance(node, ast.ImportFrom):
                found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
        graph[name] = {module for module in found if module in names and module != name}
    assert not cycles(graph)
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["a", "b", "c"]


def lines() -> dict[str, str]:
    """What each room says of itself in the first line of its __init__."""
    return {room: (SOURCE / room / "__init__.py").read_text(encoding="utf-8").split("\n")[0] for room in ROOMS}


def test_every_room_says_what_comes_in_and_what_goes_out() -> None:
    for room, line in lines().items():
        assert re.match(rf'"""{room}: .+', line), line
        assert room == "base" or re.search(r"comes? in; .* (go|goes|stream) out", line), line


def test_the_map_of_contributing_is_that_of_the_rooms() -> None:
    """Between the markers: one line a room. To make it again: python tools/architecture.py --map."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    shown = text.partition("<!-- rooms -->\n")[2].partition("<!-- end -->")[0]
    for room, line in lines().items():
        said = line.removeprefix('"""').removesuffix('"""').partition(": ")[2]
        assert f"| `{room}/` | {said} |" in shown
