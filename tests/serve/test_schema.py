"""Schemathesis reads the description of the API and asks whatever it allows and forbids. `make soak` asks more."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from pixnar.benchmarks.serve_process import ServeProcess

from tests.serve.conftest import KEY

EXAMPLES = int(os.environ.get("PIXNAR_SCHEMA_EXAMPLES", "20"))


def test_nothing_that_is_asked_makes_it_fail(copy: Path, tmp_path: Path) -> None:
    with ServeProcess(copy, "--wait-ms", "60000", environment={"PIXNAR_API_KEY": KEY}) as server:
        command = [
            *(str(Path(sys.executable).with_name("schemathesis")), "run", f"{server.address}/openapi.json"),
            *("--max-examples", str(EXAMPLES), "--header", f"X-API-Key: {KEY}", "--request-timeout", "30"),
            # the grammar of a filter is not in the description: what it allows may still be no filter
            *("--exclude-checks", "positive_data_acceptance", "--no-color", "--continue-on-failure"),
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-5000:]
        cases = re.search(r"([\d,]+) generated, ([\d,]+) passed", done.stdout)
        assert cases is not None, done.stdout[-2000:]
        assert int(cases[1].replace(",", "")) >= 3 * EXAMPLES
        print(cases[0])
        assert server.events("error") == []
        assert server.stop() == 0
    assert not any(status.startswith("5") for status in server.events("stopped")[0]["answered"])
