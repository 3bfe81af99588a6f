"""Index, search and scores of the autoregressive baselines need no torch; the decoder alone does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pixnar.evaluation.baselines import autoregressive

MODULES = {path.stem for path in Path(autoregressive.__file__).parent.glob("*.py")} - {"__init__"}
TORCH = {"backbone", "build", "layers", "retriever", "training"}


def test_only_the_decoder_imports_torch() -> None:
    assert TORCH < MODULES
    names = ", ".join(f"{autoregressive.__name__}.{module}" for module in sorted(MODULES - TORCH))
    code = f"import sys, {names}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
