"""Container files: whole, checked, and clear about what is wrong with them."""

from __future__ import annotations

import errno
import os
import random
import resource
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.storage import atomic_write, container_kind, read_container, reserve, write_container

ARRAYS: dict[str, NDArray[Any]] = {
    "small": np.arange(7, dtype=np.uint8),
    "empty": np.zeros(0, np.uint32),
    "wide": np.linspace(0, 1, 50, dtype=np.float32),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_container(tmp_path / "x.bin", "things", 3, {"a": [1, "ü"]}, ARRAYS)
    return tmp_path / "x.bin"


def test_round_trip(file: Path) -> None:
    found = read_container(file, "things", 3)
    assert found.meta == {"a": [1, "ü"]}
    for name, array in ARRAYS.items():
        assert found.arrays[name].dtype == array.dtype
        assert (found.arrays[name] == array).all()
        assert not found.arrays[name].flags.writeable
    assert read_container(file, "things", 9).meta == found.meta  # older files stay readable
    assert container_kind(file, "things") == "things"


def test_same_content_same_bytes(file: Path, tmp_path: Path) -> None:
    write_container(tmp_path / "again", "things", 3, {"a": [1, "ü"]}, ARRAYS)
    assert (tmp_path / "again").read_bytes() == file.read_bytes()


def test_arrays_are_aligned_and_mapped(file: Path) -> None:
    for array in read_container(file, "things", 3).arrays.values():
        assert array.ctypes.data % 64 == 0


def test_every_flipped_byte_is_noticed(file: Path) -> None:
    good = file.read_bytes()
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 0x41
        file.write_bytes(bad)
        try:
            found = read_container(file, "things", 3)
        except FileFormatError as error:
            message = str(error)
        else:  # padding between the parts carries nothing
            assert good[position] == 0
            assert all((found.arrays[name] == array).all() for name, array in ARRAYS.items())
            continue
        assert "\n" not in message
        assert str(file) in message


def test_every_truncation_is_noticed(file: Path) -> None:
    good = file.read_bytes()
    for size in {0, 1, 63, 64, 65, *random.Random(0).sample(range(len(good)), 60)}:
        file.write_bytes(good[:size])
        with pytest.raises(FileFormatError, match=r"damaged or incomplete|cannot open"):
            read_container(file, "things", 3)
    file.write_bytes(good + b"more")
    with pytest.raises(FileFormatError, match=f"should have {len(good)} bytes and has {len(good) + 4}"):
        read_container(file, "things", 3)


def test_foreign_newer_wrong_kind_missing(file: Path, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="format 3, this release reads up to 2: upgrade"):
        read_container(file, "things", 2)
    with pytest.raises(FileFormatError, match="holds a things, not a vocab"):
        read_container(file, "vocab", 1)
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"PK\x03\x04" * 100)
    with pytest.raises(FileFormatError, match="not a pixnar file"):
        read_container(foreign, "things", 3)
    with pytest.raises(FileFormatError, match="No such file"):
        read_container(tmp_path / "none", "things", 3)
    with pytest.raises(FileFormatError, match="Is a directory"):
        read_container(tmp_path, "things", 3)


def test_unverified_read_skips_only_the_arrays(file: Path) -> None:
    bad = bytearray(file.read_bytes())
    bad[-1] ^= 1
    file.write_bytes(bad)
    read_container(file, "things", 3, verify=False)
    bad[20] ^= 1
    file.write_bytes(bad)
    with pytest.raises(FileFormatError):
        read_container(file, "things", 3, verify=False)


def test_a_failed_write_leaves_the_old_file(file: Path) -> None:
    before = file.read_bytes()

    def interrupted() -> None:
        with atomic_write(file) as out:
            out.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert file.read_bytes() == before
    assert os.listdir(file.parent) == [file.name]


def test_written_files_have_ordinary_permissions(file: Path) -> None:
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~umask


def test_a_link_stays_a_link(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    write_container(link, "things", 4, {}, {})
    assert link.is_symlink()
    assert read_container(file, "things", 4).arrays == {}


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    def full() -> None:
        with atomic_write(tmp_path / "x"):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(PixnarError, match="x: No space left on device; make room"):
        full()
    assert os.listdir(tmp_path) == []


def test_where_one_cannot_write(tmp_path: Path) -> None:
    with pytest.raises(PixnarError, match="is a folder"), atomic_write(tmp_path):
        pass
    with pytest.raises(PixnarError, match="does not exist; create it"), atomic_write(tmp_path / "no" / "x"):
        pass


def test_room_is_reserved_or_refused(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: without room a mapped file would end the process."""
    reserve(tmp_path / "small", 5000)
    assert (tmp_path / "small").read_bytes() == bytes(5000)
    assert (tmp_path / "small").stat().st_blocks * 512 >= 5000
    reserve(tmp_path / "none", 0)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(PixnarError, match=r"cannot write .*large: .*; make room there or choose another place"):
            reserve(tmp_path / "large", 1 << 21)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "large").exists()
