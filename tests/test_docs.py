"""What README and docs show is run, so it cannot drift."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from pixnar.corpus import open_corpus, write_corpus, write_demo
from pixnar.pipeline import fit
from pixnar.recipe import Recipe, override
from tests.helpers.fit_corpora import settings
from tests.helpers.tiny_model import save_encoder

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)
CODES = 150  # of the demo corpus
QUICK = {"train__steps": 2, "scoring__tune": False}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pages take for granted: `demo` as `make demo` leaves it, but small, and an encoder that knows nothing."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "demo").mkdir()
    write_demo(folder / "all")
    whole = open_corpus(folder / "all")
    kept = list(islice(whole.documents(), CODES))
    ids = {document.doc_id for document in kept}
    dev = [row for row in whole.qrels("dev") if row.doc_id in ids]
    asked = {row.query_id for row in dev}
    write_corpus(
        folder / "demo" / "corpus",
        kept,
        [row for row in whole.docids() if row.doc_id in ids],
        [query for query in whole.queries() if query.query_id in asked],
        {"dev": dev},
    )
    encoder = save_encoder(folder / "encoder", texts=[document.title for document in kept])
    fit(
        folder / "demo" / "corpus",
        folder / "demo" / "index",
        override(Recipe(), settings(encoder, **QUICK)),
        cache=folder / "cache",
        threads=1,
    )
    return folder


@pytest.mark.parametrize("page", [page for page in PAGES if BLOCK.search(page.read_text())], ids=lambda page: page.name)
def test_blocks_run(page: Path, home: Path, tmp_path: Path) -> None:
    """In their order, in one folder; of `sh` blocks the lines that begin with pixnar."""
    if "demo/" in "".join(block for _, block in BLOCK.findall(page.read_text())):
        shutil.copytree(home / "demo", tmp_path / "demo")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PIXNAR_CACHE": str(home / "cache")}
    for language, block in BLOCK.findall(page.read_text()):
        commands = [[sys.executable, "-c", block]] if language == "python" else list(_commands(block, home))
        assert commands, f"{page.name}: nothing of this can be run\n{block}"
        for command in commands:
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{page.name}: {shlex.join(command)}\n{done.stderr}"


def _commands(block: str, home: Path) -> list[list[str]]:
    """The commands of a shell block; where one trains, it does so for a moment."""
    quick = [part for setting in settings(home / "encoder", **QUICK) for part in ("--set", setting)]
    lines = [shlex.split(line, comments=True) for line in block.splitlines() if line.startswith("pixnar ")]
    return [[*line, *quick, "--minutes", "0"] if line[1] == "fit" else line for line in lines]


def test_the_index_lists_every_page() -> None:
    listed = set(re.findall(r"\]\(([^)#:]+)\)", (ROOT / "docs/README.md").read_text()))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"} <= listed


def test_every_link_leads_somewhere() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "benchmarks/README.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"
