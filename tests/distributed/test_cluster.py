"""Jobs come back in their order, whatever happens to workers; errors are one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pixnar.base.errors import CorpusError, MissingExtraError, PixnarError
from pixnar.cli import main
from pixnar.distributed.cluster import RETRIES, Executor, LocalExecutor, RayExecutor, connected
from tests.helpers.shard_corpora import contents, write_sharded

ROWS = [(f"d{number % 5}", f"{word} of tea, cup {number % 7}") for number in range(40) for word in ("a cup", "one pot")]


def _later(number: int) -> int:
    return number * number


def _refuse(error: type[PixnarError] | None) -> None:
    if error is MissingExtraError:
        raise MissingExtraError("this", "scale")
    raise (error or ValueError)("no such thing\nand more")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(params=["local", "ray"])
def executor(request: pytest.FixtureRequest) -> Executor:
    found: Executor = LocalExecutor() if request.param == "local" else request.getfixturevalue("ray_executor")
    return found


def test_answers_come_in_order_and_progress_is_told(executor: Executor) -> None:
    told: list[tuple[str, int, int]] = []
    jobs = [(number,) for number in range(10)]
    assert list(executor.run("squares", _later, jobs, lambda *now: told.append(now))) == [n * n for n in range(10)]
    assert told[-1] == ("squares", 10, 10)
    assert list(executor.run("nothing", _later, [])) == []


def test_errors_of_the_input_come_back_as_they_were(executor: Executor) -> None:
    with pytest.raises(CorpusError, match="no such thing"):
        list(executor.run("work", _refuse, [(CorpusError,)]))
    with pytest.raises(PixnarError, match=r"pip install 'pixnar\[scale\]'"):
        list(executor.run("work", _refuse, [(MissingExtraError,)]))


def test_other_errors_are_one_line(ray_executor: RayExecutor) -> None:
    with pytest.raises(PixnarError, match=r"work: a worker failed with ValueError: no such thing$"):
        list(ray_executor.run("work", _refuse, [(None,)]))


def test_a_job_that_kills_every_worker_is_given_up(ray_executor: RayExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pixnar.distributed.cluster.RETRIES", 1)
    with pytest.raises(PixnarError, match="2 workers died over the same job"):
        list(RayExecutor(1).run("work", _die, [()]))
    assert RETRIES > 1


def test_no_cluster_and_no_workers_are_told(ray_executor: RayExecutor) -> None:
    with pytest.raises(PixnarError, match="0 workers can do nothing"), connected(0):
        pass
    with connected(3) as again:  # in a process that is connected already
        assert again.workers == 3
    with connected() as again:
        assert again.workers == 4
    assert list(ray_executor.run("squares", _later, [(3,)])) == [9]


def test_without_the_extra_it_is_named(tmp_path: Path) -> None:
    corpus = write_sharded(tmp_path / "corpus", ROWS, 5, 2)
    hidden = "import sys; sys.modules['ray'] = None; from pixnar.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", hidden, "vocab", str(corpus), "-o", str(tmp_path / "v"), "--ray"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install 'pixnar[scale]'" in done.stderr
    assert os.listdir(tmp_path) == ["corpus"]


def test_commands_make_the_same_files(
    ray_executor: RayExecutor, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    corpus = write_sharded(tmp_path / "corpus", ROWS, 5, 3)
    for name, ray in (("plain", []), ("sharded", ["--ray", "--workers", "2"])):
        vocabulary, table = tmp_path / f"{name}.vocab", tmp_path / f"{name}.table"
        assert _pixnar("vocab", corpus, "-o", vocabulary, "--size", 600, *ray) == 0
        assert _pixnar("table", corpus, "--vocab", vocabulary, "-o", table, *ray) == 0
    assert (tmp_path / "plain.vocab").read_bytes() == (tmp_path / "sharded.vocab").read_bytes()
    assert contents(tmp_path / "plain.table") == contents(tmp_path / "sharded.table")
    assert len(os.listdir(tmp_path)) == 5
    told = capfd.readouterr().err.splitlines()
    assert all(line.startswith("[") and " s] " in line for line in told), told  # progress on a slow day, and no more
    assert _pixnar("vocab", corpus, "-o", tmp_path / "v", "--workers", 2) == 2
    assert "--workers means nothing without --ray" in capfd.readouterr().err
    assert (
        _pixnar("table", corpus, "--vocab", tmp_path / "plain.vocab", "-o", tmp_path / "t", "--scratch", tmp_path) == 2
    )
    assert "--scratch means nothing without --ray" in capfd.readouterr().err


def _pixnar(*arguments: object) -> int:
    try:
        main(list(map(str, arguments)))
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_a_cluster_that_is_not_there_is_told(tmp_path: Path) -> None:
    corpus = write_sharded(tmp_path / "corpus", ROWS, 5, 1)
    command = [sys.executable, "-m", "pixnar.cli", "vocab", str(corpus), "-o", str(tmp_path / "v")]
    done = subprocess.run(
        [*command, "--ray", "--ray-address", "127.0.0.1:1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "cannot connect to Ray at 127.0.0.1:1 (Connection refused)" in done.stderr
    assert done.stderr.count("\n") == 1
