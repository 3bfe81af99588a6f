"""The command line as a user meets it: real processes, real files."""

from __future__ import annotations

import gzip
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from pixnar.cli import app
from pixnar.cli.research import Benchmark
from pixnar.vocab import Vocabulary


def pixnar(
    *arguments: str | Path, text: str = "", cwd: Path | None = None, seconds: int = 120
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pixnar.cli", *map(str, arguments)]
    return subprocess.run(command, input=text, capture_output=True, text=True, cwd=cwd, timeout=seconds, check=False)


def fails(message: str, *arguments: str | Path, text: str = "") -> None:
    done = pixnar(*arguments, text=text)
    assert done.returncode == 2, done
    assert message in done.stderr
    assert done.stderr.startswith("pixnar: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    rows = [("d1", "cheap flights to Rome"), ("d1", "flights to rome"), ("d2", "cheap hotels"), ("d2", "Cheap Hotels")]
    (folder / "corpus.jsonl").write_text("".join(f'{{"_id": "{i}", "title": "", "text": ""}}\n' for i in ("d1", "d2")))
    (folder / "docids.jsonl").write_text("".join(json.dumps({"_id": i, "docid": d}) + "\n" for i, d in rows))
    return folder


def test_vocabulary_from_build_to_text(corpus: Path, tmp_path: Path) -> None:
    target = tmp_path / "x.vocab"
    done = pixnar("vocab", corpus, "-o", target, "--size", "600", "--min-count", "2")
    assert done.returncode == 0, done.stderr
    assert "x.vocab: " in done.stdout
    assert "fewer than the 600 wanted" in done.stdout
    shown = pixnar("vocab", "encode", target, "CHEAP flights to Rome!")
    assert shown.stdout == "[cheap][flights to rome][!]\n"
    assert (
        pixnar("vocab", "encode", target, text="cheap\n\nflights to rome\n").stdout == "[cheap]\n\n[flights to rome]\n"
    )
    ids = pixnar("vocab", "encode", target, "--ids", "cheap flights to rome").stdout.split()
    assert Vocabulary.load(target).decode([int(v) for v in ids]) == "cheap flights to rome"


def test_inspect_shows_and_draws(corpus: Path, tmp_path: Path) -> None:
    target = tmp_path / "x.vocab"
    pixnar("vocab", corpus, "-o", target, "--min-count", "2")
    done = pixnar(
        *("vocab", "inspect", target, "--text", "Cheap flights to Rome"),
        *("--plot", tmp_path / "p.png", "--json", tmp_path / "p.json"),
    )
    assert done.returncode == 0, done.stderr
    for expected in ("tokens per docid", "mean 3.33, p50 2, p99 7", "words per token", "[cheap][flights to rome]"):
        assert expected in done.stdout
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    figures = json.loads((tmp_path / "p.json").read_text())
    assert figures["top"][0] == ["flights to rome", 2]
    assert figures["lengths"] == [0, 1, 1, 0, 0, 0, 0, 1]  # "hotels" occurs once and is spelled out


def test_several_files_and_standard_input_are_one_corpus(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("new york pizza\nnew york\n")
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write('{"docid": "new york hotels"}\n')
    done = pixnar("vocab", tmp_path / "a.txt", tmp_path / "b.jsonl.gz", "-", "-o", tmp_path / "v", text="pizza\n")
    assert done.returncode == 0, done.stderr
    vocabulary = Vocabulary.load(tmp_path / "v")
    assert vocabulary.meta["docids"] == 4
    assert vocabulary.tokens("New York") == ["new york"]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_baselines_are_built_the_same_way(kind: str, corpus: Path, tmp_path: Path) -> None:
    done = pixnar("vocab", corpus, "-o", tmp_path / "v", "--kind", kind, "--size", "300")
    assert done.returncode == 0, done.stderr
    assert pixnar("vocab", "inspect", tmp_path / "v").stdout.split()[:2] == ["kind", kind]


def test_bad_rows_stop_or_are_counted(corpus: Path, tmp_path: Path) -> None:
    with (corpus / "docids.jsonl").open("a") as file:
        file.write('{"_id": "d9", "docid": "of nobody"}\n')
    fails("docids.jsonl:5: unknown document id", "vocab", corpus, "-o", tmp_path / "v")
    assert not (tmp_path / "v").exists()
    done = pixnar("vocab", corpus, "-o", tmp_path / "v", "--skip-bad-rows")
    assert done.returncode == 0
    assert "unknown document id" in done.stderr
    assert (tmp_path / "v").exists()


def test_wrong_usage_is_one_line(corpus: Path, tmp_path: Path) -> None:
    fails("Missing option", "vocab", corpus)
    fails("No such command", "nonsense")
    for bare in ([], ["vocab"]):
        done = pixnar(*bare)
        assert (done.returncode, done.stderr) == (2, "")
        assert "Usage" in done.stdout
    fails("size is 3", "vocab", corpus, "-o", tmp_path / "v", "--size", "3")
    fails("no amount of memory", "vocab", corpus, "-o", tmp_path / "v", "--max-memory", "lots")
    fails(
        "--max-words means nothing with --kind bpe",
        "vocab",
        corpus,
        "-o",
        tmp_path / "v",
        "--kind",
        "bpe",
        "--max-words",
        "3",
    )
    fails("no folder", "vocab", corpus, "-o", tmp_path / "v", "--scratch", tmp_path / "nowhere")
    fails("is not a list of numbers", "bench", "vocab", "--sizes", "a")
    fails("is not a list of inside", "bench", "vocab", "--punctuation", "foo")
    fails("needs --tokenizer", "vocab", corpus, "-o", tmp_path / "v", "--kind", "wordpiece")
    fails("no file", "vocab", tmp_path / "nowhere", "-o", tmp_path / "v")
    fails("not a pixnar file", "vocab", "inspect", corpus / "corpus.jsonl")
    fails("cannot open", "vocab", "inspect", tmp_path / "nowhere")
    assert os.listdir(tmp_path) == ["corpus"]


def test_nothing_of_yours_is_overwritten(corpus: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("x" * 100)
    fails("exists and is no vocabulary", "vocab", corpus, "-o", precious)
    fails("is a folder", "vocab", corpus, "-o", corpus)
    fails("does not exist; create it", "vocab", corpus, "-o", tmp_path / "no" / "v")
    assert precious.read_text() == "x" * 100
    for _ in range(2):  # a vocabulary may be built again in its place
        assert pixnar("vocab", corpus, "-o", tmp_path / "v").returncode == 0


def test_corpus_commands(corpus: Path, tmp_path: Path) -> None:
    done = pixnar("corpus", "check", corpus, "--json", tmp_path / "c.json")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "c.json").read_text())["counts"] == {"documents": 2, "docids": 4, "queries": 0}
    done = pixnar("corpus", "convert", corpus, "-o", tmp_path / "copy", "--gzip")
    assert done.returncode == 0, done.stderr
    assert pixnar("vocab", tmp_path / "copy", "-o", tmp_path / "v").returncode == 0
    (corpus / "docids.jsonl.gz").touch()  # not missing, but there twice
    fails("has both docids.jsonl and docids.jsonl.gz", "corpus", "check", corpus)


@pytest.mark.timeout(900)
def test_demo_runs_and_runs_again(tmp_path: Path) -> None:
    few = ("--minutes", "0.1", "--queries", "40")
    first = pixnar("demo", "-o", "demo", *few, cwd=tmp_path, seconds=800)
    assert first.returncode == 0, first.stderr
    told = " ".join(first.stdout.split())
    assert "Not for clinical use" in told
    assert "40 terms of the test split" in told
    assert [told.count(f"{i} of 6 ") for i in range(1, 7)] == [1] * 6
    assert told.count("to the end)") == 6
    assert "reused" not in told
    rows = first.stdout.partition("MRR@10   R@5")[2]
    for row in (
        "pixnar, all sources",
        "pixnar, docids alone",
        "BM25",
        "dense",
        "hybrid of both",
        "rank fusion of both",
    ):
        assert len(rows.partition(f"\n{row}  ")[2].splitlines()[0].split()) == 7, row  # 50.0 ± 7.0 …
    assert "named by [" in told
    assert "ranked by " in told
    assert first.stdout.splitlines()[-1].endswith("pixnar serve demo/index, then open http://127.0.0.1:8000")
    kept = {name: (tmp_path / "demo" / name).read_bytes() for name in ("phrases.vocab", "figures.json")}
    again = pixnar("demo", "-o", "demo", *few, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count(": reused") == 4
    assert {name: (tmp_path / "demo" / name).read_bytes() for name in kept} == kept
    table = first.stdout.partition("MRR@10   R@5")[2].partition("6 of 6")[0]
    assert table
    assert again.stdout.partition("MRR@10   R@5")[2].partition("6 of 6")[0] == table


def test_progress_bars_on_a_terminal_plain_lines_elsewhere(corpus: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pixnar.cli", "vocab", str(corpus), "-o", str(tmp_path / "v")]
    leader, follower = pty.openpty()
    process = subprocess.Popen(command, stderr=follower, stdout=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm"})
    os.close(follower)
    seen = b""
    try:
        while chunk := os.read(leader, 4096):
            seen += chunk
    except OSError:  # the terminal has gone with the process
        pass
    assert process.wait(60) == 0
    assert "━".encode() in seen
    assert b"selecting" in seen
    assert "\x1b" not in pixnar("vocab", corpus, "-o", tmp_path / "v").stderr


def test_help_teaches() -> None:
    done = pixnar("vocab", "build", "--help")
    assert done.returncode == 0
    for expected in ("--min-count", "--max-memory", "default by corpus", "A corpus"):
        assert expected in " ".join(done.stdout.replace("│", " ").split())
    assert pixnar("version").stdout.strip() == pixnar("--version").stdout.strip() != ""


PANELS = {
    "Start": ["demo", "fit", "search", "serve", "mcp"],
    "Measure": ["evaluate", "compare", "baseline", "bench"],
    "Change": ["add", "remove", "compact", "table", "verify"],
    "Prepare": ["corpus", "docids", "vocab"],
    "Distribute": ["shard", "search-batch", "plan"],
    "Research": ["reproduce", "shortlist"],
}


def test_commands_stand_in_panels() -> None:
    seen: dict[str, list[str]] = {}
    for line in pixnar("--help").stdout.splitlines():
        if line.startswith("╭─"):
            seen[line.split()[1]] = names = []
        elif line.startswith("│ ") and line[2] != " ":
            names.append(line.split()[1])
    assert seen.pop("Options") == ["--version", "--help"]
    assert seen == PANELS
    assert list(seen) == list(PANELS)


def commands(command: Any, path: str = "pixnar") -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield path, command.load() if isinstance(command, Benchmark) else command
        return
    for name, inner in command.commands.items():
        yield from commands(inner, f"{path} {name}")


def test_every_command_has_a_sentence_and_an_example() -> None:
    every = {path: command for path, command in commands(typer.main.get_command(app)) if not command.hidden}
    assert len(every) > 30
    for path, command in every.items():
        first, _, rest = command.help.strip().partition("\n")
        assert first.endswith("."), path
        example = path.replace(" build", "").replace("pixnar", "", 1).strip()
        assert f"{example}" in rest, path
        assert "[bold]" in rest, path


def test_a_benchmark_says_in_the_list_what_it_says_itself() -> None:
    listed = typer.main.get_command(app).commands["bench"].commands  # type: ignore[attr-defined]
    assert len(listed) == 9
    for name, command in listed.items():
        assert command.help == command.load().help.partition("\n")[0], name
    fails("No such option", "bench", "decode", "--nothing")
    fails("is not one number", "bench", "opening", "--tokens", "1,2")
    fails("give numbers of 1 or more", "bench", "decode", "--docids", "0")
    fails("give it a file, not -", "bench", "decode", "--json", "-")
    fails("--index and --corpus belong together", "bench", "softmax", "--corpus", "x", "--tokens", "")


def test_listing_the_benchmarks_imports_none() -> None:
    script = (
        "import sys\nfrom pixnar.cli import main\n"
        "try:\n    main(['bench', '--help'])\nexcept SystemExit:\n"
        "    print([name for name in sys.modules if name.startswith(('pixnar.benchmarks', 'torch', 'onnxruntime'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_common_options_mean_the_same_everywhere() -> None:
    helps: dict[str, set[str]] = {"--json": set(), "--threads": set()}
    for path, command in commands(typer.main.get_command(app)):
        for param in command.params:
            assert "--out" not in param.opts, path
            assert ("-o" in param.opts) == ("--output" in param.opts), path
            for name in helps.keys() & set(param.opts):
                helps[name].add(str(param.help))
    assert len(helps["--json"]) == 1
    assert helps["--threads"] == {"Worker threads; 0 = all cores."}


def test_flags_have_no_type() -> None:
    for path, command in commands(typer.main.get_command(app)):
        context = typer.Context(command, info_name=path)
        flags = [param for param in command.get_params(context) if getattr(param, "is_flag", False)]
        assert flags, path  # --help, if no other
        assert {param.metavar for param in flags} == {""}, path
    assert "<bool>" not in pixnar("fit", "--help").stdout
