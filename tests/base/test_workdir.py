"""Output folders: one process at a time, resumed only with the same settings, and whole whenever a kill comes."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pixnar.base.errors import CorpusError, PixnarError
from pixnar.base.storage import atomic_write, write_json
from pixnar.base.workdir import LOCK, WHOLE, Workdir, may_resume, read_note, scratch_folder, staged, swap, work_path

NOTE = "begun.json"
SETTINGS = {"corpus": ["a", 1], "recipe": {"train": {"seed": 1, "steps": 2}}}


def stage(out: Path, content: str) -> None:
    with staged(out) as built:
        (built / "content").write_text(content)


def make(target: Path, seed: int) -> None:
    """An output of two pieces; each is made once."""
    work = Workdir(target, mark=NOTE)
    with work.claim():
        note, settings = work.path / NOTE, {"seed": seed}
        if note.exists() and not may_resume(work.path, read_note(note), settings, overwrite=True):
            work.clear()
        if not note.exists():
            write_json(note, settings)
        pieces = [work.path / f"{number}.piece" for number in range(2)]
        for piece in pieces:
            if not piece.exists():
                with atomic_write(piece) as file:
                    file.write(b"%d" % seed)
        with work.output() as file:
            file.write(b"".join(piece.read_bytes() for piece in pieces))
        work.remove()


def killed(function: Callable[..., None], target: Path, value: Any, moment: int) -> bool:
    """Call a function in a process that is killed before its `moment`-th change to the disk; whether it was killed."""
    child = os.fork()
    if not child:
        try:
            changes = itertools.count(1)
            for module, name in [(os, "replace"), (os, "mkdir"), (os, "unlink"), (os, "rmdir"), (os, "fsync")]:
                setattr(module, name, _dying(getattr(module, name), changes, moment))
            shutil.rmtree = _dying(shutil.rmtree, changes, moment)  # type: ignore[assignment]
            function(target, value)
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


def _dying(function: Callable[..., Any], changes: Iterator[int], moment: int) -> Callable[..., Any]:
    def called(*given: Any, **options: Any) -> Any:
        if next(changes) == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*given, **options)

    return called


@pytest.mark.parametrize("replaces", [False, True])
def test_a_staged_folder_is_whole_whenever_a_kill_comes(tmp_path: Path, replaces: bool) -> None:
    moments = 0
    while True:
        home, moments = tmp_path / str(moments), moments + 1
        (home / "out").mkdir(parents=True)
        if replaces:
            (home / "out" / "content").write_text("old")
        else:
            (home / "out").rmdir()
        died = killed(stage, home / "out", "new", moments)
        copies = [path.read_text() for path in home.glob("*/content")]
        assert set(copies) <= {"old", "new"}
        assert not replaces or copies  # aside, if it was killed between the two renames
        if (home / "out").exists():
            assert (home / "out" / "content").read_text() in ("old", "new")
        else:
            (home / "out").mkdir()
        stage(home / "out", "newer")
        assert [path.name for path in home.iterdir()] == ["out"]  # the next run removes what the kill left
        assert (home / "out" / "content").read_text() == "newer"
        if not died:
            break
    assert moments > 4


@pytest.mark.parametrize("begun", [None, {"seed": 1}, {"seed": 2}])
def test_work_is_resumed_whenever_a_kill_comes(tmp_path: Path, begun: dict[str, int] | None) -> None:
    """The output is what a run in one go makes, whatever was there, and never a mixture of two runs."""
    moments = 0
    while True:
        home, moments = tmp_path / str(moments), moments + 1
        home.mkdir()
        target = home / "out"
        if begun is not None:
            with Workdir(target, mark=NOTE).claim():
                write_json(work_path(target) / NOTE, begun)
                (work_path(target) / "0.piece").write_bytes(b"%d" % begun["seed"])
                (work_path(target) / "more").mkdir()
        died = killed(make, target, 2, moments)
        assert not target.exists() or target.read_bytes() == b"22"
        assert all(path.suffix != ".part" for path in home.iterdir())  # half-written files are in the working folder
        make(target, 2)
        assert target.read_bytes() == b"22"
        assert [path.name for path in home.iterdir()] == ["out"]
        if not died:
            break
    assert moments > 10


def test_one_process_at_a_time(tmp_path: Path) -> None:
    script = "import sys, time; from pathlib import Path; from pixnar.base.workdir import Workdir\n"
    script += "with Workdir(Path(sys.argv[1])).claim(): print(flush=True); time.sleep(60)"
    target = tmp_path / "out"
    with subprocess.Popen([sys.executable, "-c", script, str(target)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with (
            pytest.raises(PixnarError, match=r"out\.work is being changed by another process: try again"),
            Workdir(target).claim(),
        ):
            pytest.fail("both have it")
        other.kill()
    with Workdir(target).claim():  # a dead process holds no lock
        assert os.listdir(work_path(target)) == [LOCK]


def test_a_lock_of_a_removed_folder_is_not_taken(tmp_path: Path) -> None:
    first = Workdir(tmp_path / "out")
    with ThreadPoolExecutor(1) as pool, first.claim():
        waiting = pool.submit(lambda: Workdir(tmp_path / "out").claim().__enter__())
        time.sleep(0.3)
        first.remove()
        first.path.mkdir()
        (first.path / LOCK).touch()  # of a third run
    with pytest.raises(PixnarError, match="was in use until now by another run, which has ended: run the command"):
        waiting.result()
    first.remove()
    first.forget("*")
    assert first.path.is_dir()  # it is not ours any more


@pytest.mark.parametrize(
    ("mark", "names", "ours"),
    [
        (NOTE, [], True),
        (NOTE, [LOCK], True),
        (NOTE, [LOCK, ".begun.json.x.part"], True),
        (NOTE, [NOTE, LOCK, "0.piece", "anything"], True),
        (NOTE, ["letter.txt"], False),
        (NOTE, [LOCK, "0.piece"], False),
        (LOCK, [LOCK, "0.piece"], True),
        (LOCK, ["0.piece"], False),
        (LOCK, [LOCK, "0.piece", "letter.txt"], False),
    ],
)
def test_what_is_not_ours_stays(tmp_path: Path, mark: str, names: list[str], ours: bool) -> None:
    files: dict[str, Any] = {} if mark == NOTE else {"files": re.compile(r"0\.piece")}
    work = Workdir(tmp_path / "out", mark=mark, **files)
    work.path.mkdir()
    for name in names:
        (work.path / name).write_text("mine")
    if ours:
        with work.claim():
            assert sorted(os.listdir(work.path)) == sorted({*names, LOCK} - {".begun.json.x.part"})
            work.remove()
        assert os.listdir(tmp_path) == []
        return
    refused = r"out\.work is needed for the work and holds something else: move it away, or choose another output"
    with pytest.raises(PixnarError, match=refused), work.claim():
        pytest.fail("claimed")
    assert sorted(os.listdir(work.path)) == sorted(names)


def test_what_somebody_adds_meanwhile_stays(tmp_path: Path) -> None:
    work = Workdir(tmp_path / "out", files=re.compile(r"\d\.piece"))
    with work.claim():
        (work.path / "0.piece").touch()
        (work.path / "letter.txt").touch()
        work.forget("*.piece")
        assert sorted(os.listdir(work.path)) == ["0.piece", "letter.txt", LOCK]
        work.remove()
        assert os.listdir(work.path) == ["letter.txt"]


def test_no_place_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file.work").touch()
    (tmp_path / "link.work").symlink_to(tmp_path / "nowhere")
    for name in ("file", "link"):
        with pytest.raises(PixnarError, match="is needed for the work and holds something else"):
            Workdir(tmp_path / name).claim().__enter__()
    with pytest.raises(
        PixnarError, match=r"cannot write .*out\.work: No such file or directory; choose another output"
    ):
        Workdir(tmp_path / "nowhere" / "out").claim().__enter__()
    for error_type in (PixnarError, CorpusError):
        with pytest.raises(error_type, match=r"cannot write .*out: No such file or directory; choose another place"):
            staged(tmp_path / "nowhere" / "out", error_type).__enter__()


def test_settings_that_differ_are_named(tmp_path: Path) -> None:
    noted = json.loads(json.dumps(SETTINGS))
    assert may_resume(tmp_path, noted, SETTINGS, overwrite=False)
    assert may_resume(tmp_path, noted, SETTINGS | {"corpus": ("a", 1)}, overwrite=False)  # JSON has no tuples
    for other, difference in (
        (SETTINGS | {"corpus": ["b", 1]}, "another corpus"),
        (SETTINGS | {"recipe": {"train": {"seed": 1, "steps": 3}}}, "another recipe.train.steps"),
        (SETTINGS | {"recipe": {"train": {"seed": 1}}}, "another recipe.train.steps"),
        (SETTINGS | {"recipe": None}, "another recipe"),
        (SETTINGS | {"new": None}, "another new"),
    ):
        message = f"{tmp_path} was begun with {difference}: use the same again, or pass --overwrite to begin anew"
        with pytest.raises(PixnarError, match=re.escape(message)):
            may_resume(tmp_path, noted, other, overwrite=False)
        assert not may_resume(tmp_path, noted, other, overwrite=True)
    for content in (b"{", b"\xff", b"[]"):
        (tmp_path / NOTE).write_bytes(content)
        with pytest.raises(PixnarError, match="was begun with settings that cannot be read"):
            may_resume(tmp_path, read_note(tmp_path / NOTE), SETTINGS, overwrite=False)
    assert read_note(tmp_path / "none") is None


def test_the_output_goes_where_a_link_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To another disk, too; and an error there is one line."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere" / "mine")
    work, replace, code = Workdir(tmp_path / "out"), os.replace, errno.EXDEV

    def failing(source: Path, target: Path) -> None:
        if Path(source).name == WHOLE:
            raise OSError(code, os.strerror(code))
        replace(source, target)

    with work.claim():
        for content in (b"one", b"two"):
            with work.output() as file:
                file.write(content)
            assert (tmp_path / "out").read_bytes() == content
            monkeypatch.setattr(os, "replace", failing)
        code = errno.EACCES
        with pytest.raises(PixnarError, match=r"cannot write .*mine: Permission denied; make room there or"):  # noqa: SIM117
            with work.output() as file:
                file.write(b"three")
    assert (tmp_path / "out").is_symlink()
    assert os.listdir(tmp_path / "elsewhere") == ["mine"]


def test_a_failure_leaves_the_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, replace = tmp_path / "out", os.replace
    with staged(out) as built:
        (built / "content").write_text("old")
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(out.stat().st_mode) == 0o777 & ~umask
    with pytest.raises(RuntimeError), staged(out) as built:  # noqa: PT012
        (built / "content").write_text("new")
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["out"]

    def full(source: Path, target: Path) -> None:
        if str(source).endswith(".part"):
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(PixnarError, match=r"cannot write .*out: No space left on device"), staged(out):
        pass
    assert ([path.name for path in tmp_path.iterdir()], (out / "content").read_text()) == (["out"], "old")


def test_an_earlier_process_with_our_number_is_in_nobodys_way(tmp_path: Path) -> None:
    """In a container most processes have the same number."""
    out, old = tmp_path / "out", tmp_path / f".out.replaced-{os.getpid()}"
    for folder in (out, old, tmp_path / "built"):
        folder.mkdir()
        (folder / "content").write_text(folder.name)
    swap(tmp_path / "built", out)
    assert ((out / "content").read_text(), os.listdir(tmp_path)) == ("built", ["out"])
    swap(out, out)
    assert (out / "content").exists()


def test_scratch_space_is_removed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), scratch_folder(tmp_path) as folder:  # noqa: PT012
        (folder / "content").touch()
        raise RuntimeError
    with scratch_folder(tmp_path) as folder:
        shutil.rmtree(folder)
    assert os.listdir(tmp_path) == []
