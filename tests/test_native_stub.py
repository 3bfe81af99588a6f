"""The hand-written stub names exactly what the native module has."""

from __future__ import annotations

import ast
from pathlib import Path

from pixnar import _native

STUB = Path(__file__).parents[1] / "src/pixnar/_native.pyi"


def test_stub_and_module_agree() -> None:
    tree = ast.parse(STUB.read_text())
    stub = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    stub |= {
        node.target.id for node in tree.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert stub == {name for name in dir(_native) if not name.startswith("__")}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)} - {"__init__"}
            assert methods == {name for name in dir(getattr(_native, node.name)) if not name.startswith("__")}
