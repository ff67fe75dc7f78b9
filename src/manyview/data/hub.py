"""Sets on the Hugging Face hub, at a commit that can be written down: parquet files or tars, in the hub's own cache."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from manyview.data.source import note
from manyview.data.splits import check_whole, split_of
from manyview.errors import UserError

HUB = "hf"
_SPEC = re.compile(rf"{HUB}:([\w.-]+/[\w.-]+)((?:/[\w.-]+)*)(?:@(\S+))?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_CONVERTED = "refs/convert/parquet"  # where the hub itself keeps sets of other formats as parquet files
_PARTIAL = "partial-"  # with which it begins the folder of a split that it has converted in part
_ENDINGS = (".parquet", ".tar")  # the first that a repository has is read
_LOG_IN = "`hf auth login`"

Files = dict[str, Path]  # by their paths in the repository

_fetched: dict[str, Files] = {}  # by spec, because the hub shows its progress bars each time that it is asked


class _Asked(NamedTuple):
    spec: str
    repository: str
    folder: str  # in it, with a slash at its end, or empty
    revision: str | None

    @classmethod
    def of(cls, spec: str) -> "_Asked":
        match = _SPEC.fullmatch(spec)
        if match is None:
            raise _no_set(spec)
        repository, folder, revision = match.groups()
        return cls(spec, repository, f"{folder[1:]}/" if folder else "", revision)

    def at(self, commit: str) -> str:
        return f"{HUB}:{'/'.join(filter(None, (self.repository, self.folder.rstrip('/'))))}@{commit}"

    def of_one_set(self, names: Sequence[str], ending: str) -> list[str]:
        """The names with this ending. A repository may hold several sets, each in a folder of its own."""
        names = [name for name in names if name.startswith(self.folder) and name.endswith(ending)]
        names = [name for name in names if PurePosixPath(name).name != "metadata.parquet"]  # tells of other files
        sets = sorted({_set_of(name) for name in names})
        if len(sets) > 1:
            # One that lies in the repository itself has no name to tell it from the others.
            listed = ", ".join(f"{HUB}:{self.repository}/{each}" for each in sets if each)
            raise UserError(f"'{self.spec}' holds {len(sets)} sets: name one by its folder, of {listed}")
        return names


def _set_of(name: str) -> str:
    """The folder without those that are for splits: default/train/0000.parquet belongs to default."""
    parents = PurePosixPath(name).parent.parts
    return "/".join(part for part in parents if part != "data" and split_of(part) is None)


def is_on_hub(spec: str) -> bool:
    return spec.startswith(f"{HUB}:")


def pinned(spec: str) -> str:
    """`spec` with a commit for its revision, which the cache holds then. Anything but a set of the hub stays."""
    if not is_on_hub(spec):
        return spec
    asked = _Asked.of(spec)
    if asked.revision is not None and _COMMIT.fullmatch(asked.revision):
        return spec
    from huggingface_hub.errors import LocalEntryNotFoundError

    there, reached = Counter[str](), True
    for revision in [asked.revision] if asked.revision else ["main", _CONVERTED]:
        with _explained(asked):
            listed = _listed(asked, revision)
            there += Counter(PurePosixPath(name).suffix or name for name in listed or ())
            try:
                commit, files = _files(asked, revision, listed)
            except LocalEntryNotFoundError:  # offline the other revision may be at hand
                listed, files = None, {}
            if files:
                _fetched[asked.at(commit)] = files
                return asked.at(commit)
            reached &= listed is not None
    if not reached:
        raise _away(asked)
    endings = ", ".join(f"{count:,} {ending}" for ending, count in there.most_common(5))
    raise UserError(
        f"'{spec}' has no parquet files and no tars, only {endings or 'none'}: fetch them with `hf download "
        f"{asked.repository} --repo-type dataset --local-dir DIR` and use --data DIR"
    )


def fetched(spec: str) -> tuple[str, Files]:
    """`spec` with its commit, and the files of the set."""
    asked = _Asked.of(pinned(spec))
    assert asked.revision is not None, "it is pinned"
    if asked.spec not in _fetched:
        with _explained(asked):
            _, _fetched[asked.spec] = _files(asked, asked.revision, None)
    files = _fetched[asked.spec]
    if not files:
        raise UserError(f"'{spec}' has no parquet files and no tars: check its folder and its commit")
    check_whole(spec, files)
    return asked.spec, files


def _listed(asked: _Asked, revision: str) -> list[str] | None:
    """The names of all files, or None where the hub does not say."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError, RevisionNotFoundError

    try:
        return [each.rfilename for each in HfApi().dataset_info(asked.repository, revision=revision).siblings or ()]
    except RevisionNotFoundError:
        if revision != _CONVERTED:
            raise
        return []
    except HFValidationError:
        raise
    except Exception:  # no network, no permission: the files may be in the cache, or else their download says why not
        return None


def _files(asked: _Asked, revision: str, listed: list[str] | None) -> tuple[str, Files]:
    """The commit, and the files of the set, fetched into the cache as far as they are missing there. Of the files in
    the revision `listed` are the names, where they are known."""
    from huggingface_hub import snapshot_download

    for ending in _ENDINGS:
        if listed is None or asked.of_one_set(listed, ending):
            wanted = f"{asked.folder}*{ending}"
            path = snapshot_download(asked.repository, repo_type="dataset", revision=revision, allow_patterns=wanted)
            found = {each.relative_to(path).as_posix(): each for each in Path(path).rglob(f"*{ending}")}
            if names := asked.of_one_set(sorted(found), ending):
                partial = sorted({part for name in names for part in name.split("/") if part.startswith(_PARTIAL)})
                if partial:
                    note(
                        f"of '{asked.spec}' the hub has converted only a part into parquet files ({', '.join(partial)})"
                    )
                return Path(path).name, {name: found[name] for name in names}
    return "", {}


def _no_set(spec: str) -> UserError:
    return UserError(f"'{spec}' names no set of the hub: use {HUB}:OWNER/NAME or {HUB}:OWNER/NAME@REVISION")


def _away(asked: _Asked) -> UserError:
    return UserError(
        f"'{asked.spec}' is not in the hub's cache, or not as a whole, and the hub cannot be reached: fetch it where "
        "there is a network, or set HF_HOME to a cache that has it"
    )


@contextmanager
def _explained(asked: _Asked) -> Iterator[None]:
    """One line for what may go wrong between here and the hub."""
    from huggingface_hub import errors

    try:
        yield
    except UserError:
        raise
    except errors.HFValidationError as error:
        raise _no_set(asked.spec) from error
    except errors.GatedRepoError as error:
        page = f"https://huggingface.co/datasets/{asked.repository}"
        raise UserError(f"'{asked.spec}' is gated: accept its conditions on {page}, then {_LOG_IN}") from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(
            f"'{asked.spec}' is not on the hub, or is private: check the name, or log in with {_LOG_IN}"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UserError(
            f"'{asked.spec}' has no revision {asked.revision}: name a branch, a tag or a commit, or leave it out"
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise _away(asked) from error
    except Exception as error:  # of the network, of the hub, of the disk: each has kinds of its own
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise UserError(f"'{asked.spec}' cannot be fetched ({reason}): try again") from error
