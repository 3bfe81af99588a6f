"""The scratch folder of a build, and those who still write into it when it ends."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pixnar.base.errors import PixnarError
from pixnar.base.workdir import scratch_folder
from pixnar.distributed.cluster import written


def write_on(folder: Path, busy: threading.Event, stop: threading.Event) -> None:
    number = 0
    while not stop.is_set():
        number += 1
        with contextlib.suppress(PixnarError), written(folder / f"{number}.npy") as file:  # or the folder is gone
            file.write(b"x")
        if number == 20:
            busy.set()


def test_nothing_is_left_however_long_a_worker_goes_on_writing(tmp_path: Path) -> None:
    """A worker that was told to stop writes on until it has: what it writes then must not keep the folder alive."""
    for _ in range(20):
        busy, stop = threading.Event(), threading.Event()
        with ThreadPoolExecutor(3) as workers:
            try:
                with scratch_folder(tmp_path) as folder:
                    for _ in range(3):
                        workers.submit(write_on, folder, busy, stop)
                    assert busy.wait(60)
                assert list(tmp_path.iterdir()) == []
            finally:
                stop.set()
        assert list(tmp_path.iterdir()) == []


def test_no_folder_to_work_in_is_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(PixnarError, match=r"cannot make a scratch folder in .*nowhere.* --scratch"),
        scratch_folder(tmp_path / "nowhere"),
    ):
        pass
