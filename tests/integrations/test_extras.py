"""Without the other library: one line that names the extra; and the names are those of pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

EXTRAS = {
    "pyterrier": ("pyterrier", "import pixnar.integrations.pyterrier"),
    "langchain": ("langchain_core", "import pixnar.integrations.langchain"),
    "llamaindex": ("llama_index", "import pixnar.integrations.llamaindex"),
    "mcp": ("mcp", "import pixnar.integrations.mcp"),
    "hub": ("huggingface_hub", "import pixnar; pixnar.Index.from_hub('me/index')"),
}


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_missing_library(extra: str) -> None:
    library, use = EXTRAS[extra]
    code = f"import sys; sys.modules[{library!r}] = None\n{use}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("pixnar.base.errors.MissingExtraError: "), done.stderr
    assert last.endswith(f"pip install 'pixnar[{extra}]'")
    settings = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert settings["project"]["optional-dependencies"][extra]
