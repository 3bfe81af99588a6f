"""Which files of a folder a table was read from, and reading them while other processes may replace them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.table.folder import Manifest, TableFolder
from pixnar.table.generation import open_generation
from pixnar.table.journal import Journal, Position
from pixnar.table.overlay import Overlay
from pixnar.vocab import TargetVocabulary, load_vocabulary

Found = TypeVar("Found")


class OnDisk(NamedTuple):
    """Which files a table was read from, and up to where."""

    folder: TableFolder
    manifest: Manifest
    position: Position

    @property
    def journal(self) -> Journal:
        """The changes since."""
        return Journal(self.folder.path / self.manifest.changes, self.manifest.seal)


def settled(folder: TableFolder, read: Callable[[Manifest], Found]) -> Found:
    """What `read` makes of the files in force; again, if they were replaced while it read them."""
    manifest = folder.manifest()
    while True:
        try:
            return read(manifest)
        except (FileFormatError, OSError) as error:
            now = folder.manifest()
            if now == manifest:
                if isinstance(error, OSError):
                    raise FileFormatError(f"cannot open {folder.path}: {error.strerror}; copy it again") from error
                raise
            manifest = now


def read_table(folder: TableFolder, *, verify: bool) -> tuple[Overlay, OnDisk]:
    """A table as it is now, with all its changes."""

    def read(manifest: Manifest) -> tuple[Overlay, OnDisk]:
        overlay = Overlay(open_generation(folder, manifest, verify=verify))
        found = Journal(folder.path / manifest.changes, manifest.seal).read()
        assert found is not None
        changes, position = found
        for change in changes:
            overlay.apply(change)
        if verify:
            read_vocabulary(folder, manifest, verify=True)
        return overlay, OnDisk(folder, manifest, position)

    return settled(folder, read)


def read_vocabulary(folder: TableFolder, opened: Manifest, *, verify: bool = False) -> TargetVocabulary:
    """The vocabulary of a table that was opened a while ago; a table that was built anew since may have another."""

    def read(manifest: Manifest) -> TargetVocabulary:
        if manifest.files["vocabulary"].seal != opened.files["vocabulary"].seal:
            raise PixnarError(f"{folder.path} has been built again with another vocabulary: open it again")
        return load_vocabulary(folder.file(manifest, "vocabulary"), verify=verify)

    return settled(folder, read)
