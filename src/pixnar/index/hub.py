"""An index on the Hugging Face Hub: which files go up, and how it comes back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pixnar.base import hub
from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.index import manifest
from pixnar.index.card import card
from pixnar.index.files import DOCIDS, ENCODER, MODEL, TRAINING
from pixnar.table import DocidTable
from pixnar.table.folder import TableFolder

_FOLDERS = tuple(f"{name}/" for name in (DOCIDS, ENCODER, MODEL, TRAINING))


def download(repo_id: str, **options: Any) -> Path:
    """The folder of an index from the hub, every byte of it checked. Options are those of `hub.download`."""
    folder = hub.download(repo_id, manifest.NAME, "index", **options)
    if manifest.format_of(folder) != manifest.INDEX.format:
        raise PixnarError(f"{repo_id} on the hub is no index of pixnar ({manifest.NAME} is not of one): see its name")
    try:
        manifest.verify(folder)
        DocidTable.check(folder / DOCIDS)
    except manifest.OlderIndexError:
        raise
    except FileFormatError as error:
        kept = (
            folder.parents[1] if folder.parent.name == "snapshots" else folder
        )  # a snapshot is links to files beside it
        raise FileFormatError(f"{repo_id} from the hub: {error}; or delete {kept}, to download it anew") from error
    return folder


def upload(folder: Path, repo_id: str, **options: Any) -> str:
    """Put an index on the hub with a card; the address of the commit. Options are those of `hub.upload`."""
    content = manifest.read_manifest(folder)
    files = shipped(folder, content) | {hub.CARD: card(content, repo_id).encode()}
    return hub.upload(repo_id, files, _ours, **options)


def shipped(folder: Path, content: Mapping[str, Any]) -> dict[str, Path | bytes]:
    """What another machine needs: what the manifest lists, and of the docid table what is in force now.

    No lock, nothing that an unfinished fit or change left behind. The files of the table that change while it is in use
    are read here, so that what goes up is one state of it.
    """
    files: dict[str, Path | bytes] = {manifest.NAME: folder / manifest.NAME}
    files |= {name: folder / name for name in content["files"] if not name.startswith(f"{DOCIDS}/")}
    table = TableFolder(folder / DOCIDS)
    while True:
        now = table.manifest()
        changing, fixed = table.in_force(now)
        read = {f"{DOCIDS}/{name}": (table.path / name).read_bytes() for name in changing}
        if table.manifest() == now:  # else it was compacted meanwhile
            return files | {f"{DOCIDS}/{name}": table.path / name for name in fixed} | read


def _ours(there: Iterable[str]) -> list[str]:
    """Of the files of a repository, those that an index before this one brought."""
    names = list(there)
    if manifest.NAME not in names:
        return []
    return [name for name in names if name.startswith(_FOLDERS) or ("/" not in name and name.endswith(".pixnar"))]
