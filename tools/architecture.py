"""Measurements of the architecture: rooms, files, lines, repeated class names, and how far one search travels.

    python tools/architecture.py                         what can be counted in the sources
    python tools/architecture.py --index INDEX           one search, after a first one that warms up
    python tools/architecture.py --corpus CORPUS         one fit (give a small corpus)
    python tools/architecture.py --map                   the map of rooms in CONTRIBUTING.md, written anew

A room is a folder of src/pixnar. A search or fit touches a file when a function of it is called; a change of room is a
call from a function of one room to one of another.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

SOURCE = Path(__file__).resolve().parent.parent / "src" / "pixnar"


def sources() -> dict[str, Any]:
    """Counts of the source tree."""
    files = sorted(SOURCE.rglob("*.py"))
    functions: dict[str, int] = {}
    classes: dict[str, list[str]] = defaultdict(list)
    lines = 0
    for path in files:
        text = path.read_text(encoding="utf-8")
        lines += text.count("\n")
        for node in ast.walk(ast.parse(text)):
            place = str(path.relative_to(SOURCE))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions[f"{place}:{node.name}"] = (node.end_lineno or node.lineno) - node.lineno + 1
            elif isinstance(node, ast.ClassDef):
                classes[node.name.lstrip("_")].append(place)
    largest = max(functions, key=lambda name: functions[name])
    return {
        "rooms": len({room_of(path) for path in files} - {""}),
        "files": len(files),
        "lines": lines,
        "files below 60 lines": sum(path.read_text(encoding="utf-8").count("\n") < 60 for path in files),
        "largest function": f"{largest}, {functions[largest]} lines",
        "classes of the same name": {name: places for name, places in sorted(classes.items()) if len(places) > 1},
    }


def room_of(path: Path) -> str:
    """The room of a source file; empty for a file that is in none."""
    inside = path.relative_to(SOURCE).parts
    return inside[0] if len(inside) > 1 else ""


def travelled(work: Callable[[], Any]) -> dict[str, Any]:
    """What files and rooms the calls of some work go through, in this thread."""
    files: set[Path] = set()
    entered: Counter[str] = Counter()
    changes = 0
    known: dict[str, Path | None] = {}

    def inside(name: str) -> Path | None:
        if name not in known:
            path = Path(name)
            known[name] = path if path.is_relative_to(SOURCE) else None
        return known[name]

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal changes
        if event != "call" or (path := inside(frame.f_code.co_filename)) is None:
            return
        if frame.f_code.co_name in ("<module>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>"):
            return
        files.add(path)
        caller = frame.f_back
        while caller is not None and inside(caller.f_code.co_filename) is None:
            caller = caller.f_back
        before = inside(caller.f_code.co_filename) if caller is not None else None
        if before is None or room_of(before) != room_of(path):
            changes += before is not None
            entered[room_of(path) or "pixnar"] += 1

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return {"files": len(files), "rooms": len(entered), "changes of room": changes, "entered": dict(entered)}


def write_map(page: Path) -> None:
    """Write what each room says of itself between the markers of a page, in the order of tests/test_layers.py."""
    order = ast.parse((SOURCE.parent.parent / "tests" / "test_layers.py").read_text(encoding="utf-8"))
    lists = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in order.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Tuple)
        if node.targets[0].id in ("ABOVE", "TORCH", "LEAVES")
    }
    rows = ["| room | what comes in, what goes out |", "|---|---|"]
    for room in (*lists["ABOVE"], *lists["TORCH"], *lists["LEAVES"]):
        first = (SOURCE / room / "__init__.py").read_text(encoding="utf-8").split("\n")[0]
        said = first.removeprefix('"""').removesuffix('"""').partition(": ")[2]
        rows.append(f"| `{room}/` | {said} |")
    before, marker, rest = page.read_text(encoding="utf-8").partition("<!-- rooms -->\n")
    _, end, after = rest.partition("<!-- end -->")
    if not marker or not end:
        raise SystemExit(f"{page} has no <!-- rooms --> … <!-- end -->")
    page.write_text(before + marker + "\n".join(rows) + "\n" + end + after, encoding="utf-8")


def main() -> None:
    """Print the measurements as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", help="an index to search")
    parser.add_argument("--query", default="sugar disease with kidney trouble")
    parser.add_argument("--corpus", help="a small corpus to fit")
    parser.add_argument("--map", action="store_true", help="write the map of rooms in CONTRIBUTING.md anew")
    given = parser.parse_args()
    if given.map:
        write_map(SOURCE.parent.parent / "CONTRIBUTING.md")
        return
    found = sources()
    if given.index:
        from pixnar import Index

        index = Index.load(given.index)
        index.search("warming up", k=10)
        found["one search"] = travelled(lambda: index.search(given.query, k=10))
    if given.corpus:
        found["one fit"] = _fit(given.corpus)
    print(json.dumps(found, indent=1))


def _fit(corpus: str) -> dict[str, Any]:
    try:
        from pixnar.pipeline import fit
    except ImportError:  # before the room had this name
        from pixnar.fit import fit
    with tempfile.TemporaryDirectory() as folder:
        return travelled(lambda: fit(corpus, Path(folder) / "index"))


if __name__ == "__main__":
    main()
