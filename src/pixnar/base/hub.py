"""The Hugging Face Hub: folders go up in one commit and come down whole; what fails is told in one line."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

from pixnar.base.errors import MissingExtraError, PixnarError

try:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, errors
except ImportError as error:
    raise MissingExtraError("the Hugging Face Hub", "hub") from error

CARD = "README.md"
_NETWORK: type[Exception] = getattr(errors, "HTTPError", OSError)  # of the client that this release talks HTTP with
_LOGIN = "log in with `hf auth login`, set HF_TOKEN or give token="


def download(
    repo_id: str,
    needed: str,
    noun: str,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    local_dir: str | os.PathLike[str] | None = None,
) -> Path:
    """The folder of a repository's files, in the cache or in `local_dir`; only what is new is fetched.

    Without a network, what is in the cache is taken. A repository that lacks the file `needed` is no such `noun`, and
    nothing else of it is fetched.
    """
    api = _api(token)

    def fetched(patterns: list[str] | None) -> Path:
        where = api.snapshot_download(
            repo_id,
            revision=revision,
            cache_dir=None if cache_dir is None else Path(cache_dir),
            local_dir=None if local_dir is None else Path(local_dir),
            allow_patterns=patterns,
        )
        return Path(where)

    with _one_line(repo_id, revision):
        if not (fetched([needed]) / needed).is_file():
            raise PixnarError(f"{repo_id} on the hub is no {noun} of pixnar ({needed} is missing): see its name")
        return fetched(None)


def upload(
    repo_id: str,
    files: Mapping[str, Path | bytes],
    ours: Callable[[Iterable[str]], list[str]],
    *,
    private: bool | None = None,
    token: str | bool | None = None,
    commit_message: str | None = None,
) -> str:
    """Put files into a repository, made if need be, all in one commit; its address.

    Of the files that are there, those that are `ours` and not among the new ones are removed.
    """
    api = _api(token)
    with _one_line(repo_id):
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        stale = [name for name in ours(api.list_repo_files(repo_id)) if name not in files]
        added = [CommitOperationAdd(path_in_repo=name, path_or_fileobj=content) for name, content in files.items()]
        removed = [CommitOperationDelete(path_in_repo=name) for name in stale]
        message = commit_message or f"Upload with pixnar {metadata.version('pixnar')}"
        return str(api.create_commit(repo_id, [*added, *removed], commit_message=message).commit_url)


def _api(token: str | bool | None) -> HfApi:
    return HfApi(token=token, library_name="pixnar", library_version=metadata.version("pixnar"))


@contextlib.contextmanager
def _one_line(repo_id: str, revision: str | None = None) -> Iterator[None]:
    """Turn the many ways in which the hub fails into one line with a remedy."""
    try:
        yield
    except errors.HFValidationError as error:
        raise PixnarError(f"{repo_id!r} cannot be the name of a repository: write owner/name") from error
    except errors.RevisionNotFoundError as error:
        raise PixnarError(f"{repo_id} has no revision {revision!r}: give a branch, a tag or a commit") from error
    except errors.GatedRepoError as error:
        raise PixnarError(
            f"{repo_id} is only for those whom its owner lets in: ask on its page, and {_LOGIN}"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise PixnarError(f"no repository {repo_id} on the hub, or a private one: see its name, or {_LOGIN}") from error
    except errors.LocalTokenNotFoundError as error:
        raise PixnarError(f"no token for {repo_id}: {_LOGIN}") from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        remedy = _LOGIN if status == 401 else "see what your token may do" if status == 403 else "try again later"
        raise PixnarError(f"the hub refuses {repo_id} ({status}: {_first(error)}): {remedy}") from error
    except (_NETWORK, errors.LocalEntryNotFoundError, ConnectionError, TimeoutError) as error:
        raise PixnarError(
            f"cannot reach {repo_id} on the hub ({_first(error)}): see your network, try again"
        ) from error
    except OSError as error:
        raise PixnarError(f"{repo_id}: {_first(error)}; see the disk, and who may read and write there") from error


def _first(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
