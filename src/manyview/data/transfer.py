"""Files on servers, through fsspec: what a server says of them, and their bytes, however often it must be asked."""

import errno
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from manyview.data.patterns import is_tar, spelled_out
from manyview.data.source import note
from manyview.data.tarindex import index_path
from manyview.errors import UserError

T = TypeVar("T")

TIMEOUT = 60.0  # seconds without a byte
TRIES, PAUSE = 5, 1.0  # tries without progress; seconds before the second one, doubled each time
_CHUNK = 4 << 20
_MOST = 100_000  # tars in a set
_AGAIN = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_CONNECTION = {"botocore.exceptions.ConnectionError", "botocore.exceptions.HTTPClientError"}
_PAGE = re.compile(rb"\s*<(!doctype|html|\?xml)", re.IGNORECASE)
# What servers call the state of a file, the most exact first.
_STATES = (
    "ETag",
    "etag",
    "md5Hash",
    "content_md5",
    "Last-Modified",
    "LastModified",
    "last_modified",
    "mtime",
    "created",
)
_GO_ON = "a run keeps its checkpoints and goes on with `manyview resume`"


class RemoteShard(NamedTuple):
    """A tar on a server in the state that its index describes: with another size, ETag or time it is another one."""

    url: str
    size: int
    modified: str

    @property
    def kept_at(self) -> Path:
        return index_path(name_of(self.url), self.url.encode())


def is_remote(spec: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", spec) is not None


def name_of(url: str) -> str:
    """The last part of the path, without what may follow it."""
    return _path(url).rpartition("/")[2]


def _path(url: str) -> str:
    return re.split(r"[?#]", url, maxsplit=1)[0] if url.startswith("http") else url


def urls_matching(spec: str) -> dict[str, str]:
    """The tars that an address or a pattern names, by their paths below the directory that all it can match share."""
    spelled = list(islice(spelled_out(spec), _MOST + 1))
    if len(spelled) > _MOST:
        raise UserError(f"'{spec}' names more than {_MOST:,} tars: shorten the range, or write fewer and larger tars")
    urls = [url for one in spelled for url in (_listed(spec, one) if "*" in one else [one])]
    other = next((url for url in urls if not is_tar(_path(url))), None)
    if other is not None:
        raise UserError(
            f"'{spec}' names '{other}', which is no .tar: name tars, as in '{spec.rstrip('/')}/{{000..099}}.tar'"
        )
    if urls == [spec]:
        return {"": spec}
    base, found = _base(spec), dict[str, str]()
    for url in urls:
        if (known := found.setdefault(_path(url).removeprefix(base), url)) != url:
            raise UserError(
                f"'{spec}' names '{known}' and '{url}', which differ behind the path alone: give each a path"
            )
    return found


def _base(pattern: str) -> str:
    """The directory that all matches share."""
    before = re.split(r"[*{]", pattern, maxsplit=1)[0]
    return before[: before.rindex("/") + 1]


def _listed(spec: str, pattern: str) -> list[str]:
    def matches() -> list[str]:
        files, base = _filesystem(pattern), _base(pattern)
        own = files._strip_protocol(base).rstrip("/")
        return [base + path.removeprefix(own).lstrip("/") for path in files.glob(pattern)]

    found = _patiently(pattern, matches)
    if not found:
        raise UserError(
            f"'{spec}' matches no file that the server lists: check it, or write a range such as {{000..099}}"
        )
    return found


def look(url: str) -> RemoteShard:
    """The file as the server describes it now."""

    def described() -> RemoteShard:
        facts = _filesystem(url).info(url)
        if facts.get("size") is None or facts.get("type") == "directory":
            raise UserError(f"'{url}' is no file whose size the server knows: name a .tar that it can give in parts")
        return RemoteShard(url, int(facts["size"]), _state(facts))

    return _patiently(url, described)


def download(shard: RemoteShard, file: IO[bytes]) -> None:
    """Writes the bytes. Where a connection was cut, the rest alone is asked for, if the server gives parts."""
    patience = _Patience(shard.url)
    while file.tell() < shard.size:
        before = file.tell()
        try:
            with _opened(shard, before) as (stream, start):
                file.seek(start)
                while chunk := stream.read(_CHUNK):
                    if file.tell() == 0 and _PAGE.match(chunk):
                        raise UserError(
                            f"'{shard.url}' is a web page and no tar: check the address, and who may read it"
                        )
                    file.write(chunk)
                    if file.tell() > shard.size:
                        raise _changed(shard, f"{file.tell():,} bytes or more")
            if file.tell() < shard.size:
                raise ConnectionError(f"it ended after {file.tell():,} of {shard.size:,} bytes")
        except Exception as error:  # each of many libraries has its own
            if isinstance(error, OSError) and error.errno in _NO_ROOM:
                raise
            patience.after(error, progress=file.tell() > before)


@contextmanager
def _opened(shard: RemoteShard, start: int) -> Iterator[tuple[Any, int]]:
    """A stream of the file's bytes, and where it begins: at `start`, unless the server gives whole files only."""
    files = _filesystem(shard.url)
    if not shard.url.startswith("http"):
        if (now := look(shard.url)) != shard:
            raise _changed(shard, now.modified)
        with files.open(shard.url, "rb") as stream:
            stream.seek(start)
            yield stream, start
        return
    headers = {**files.kwargs.get("headers", {}), "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    with files.open(shard.url, "rb", block_size=0, size=shard.size, headers=headers) as stream:
        answer = stream.r.headers
        part = re.match(r"bytes (\d+)-\d+/(\d+)", answer.get("Content-Range", ""))
        size = part[2] if part else answer.get("Content-Length", str(shard.size))
        if size != str(shard.size) or _state(answer) not in ("", shard.modified):
            raise _changed(shard, f"{_state(answer)}, {size} bytes")
        yield stream, int(part[1]) if part else 0


def _changed(shard: RemoteShard, now: str) -> UserError:
    return UserError(
        f"'{shard.url}' has changed on its server since it was indexed ({shard.modified}, {shard.size:,} bytes, is now "
        f"{now}): put the old file back, then {_GO_ON}; a new run takes the new file"
    )


def _state(facts: Mapping[str, Any]) -> str:
    return next((str(facts[name]) for name in _STATES if facts.get(name)), "")


# Never freed: in a process forked from here the end of a client would take its connections from this one.
_clients: dict[tuple[int, Any, float], Any] = {}  # by process, class and timeout


def _filesystem(url: str) -> Any:
    kind, options = client(url), {}
    key = os.getpid(), kind, TIMEOUT
    if key in _clients:
        return _clients[key]
    if url.startswith("http"):
        import aiohttp
        from fsspec.config import conf

        limits = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT, sock_read=TIMEOUT)
        own = conf.get(url.partition("://")[0], {}).get("client_kwargs", {})
        options = {"client_kwargs": {"trust_env": True, "timeout": limits, **own}}
    _clients[key] = kind(**options)
    return _clients[key]


def client(url: str) -> Any:
    """The class of fsspec for this protocol. Imported before processes are forked, each of which would import it."""
    try:
        import fsspec

        return fsspec.get_filesystem_class(url.partition("://")[0])
    except ImportError as error:
        raise UserError(
            f"'{url}' needs another package ({error}): pip install 'manyview[remote]' has what https:// and s3:// need"
        ) from error
    except ValueError as error:
        raise UserError(f"'{url}' has an unknown protocol: use https://, s3:// or another one of fsspec") from error


def _patiently(url: str, action: Callable[[], T]) -> T:
    patience = _Patience(url)
    while True:
        try:
            return action()
        except Exception as error:  # each of many libraries has its own
            patience.after(error)


class _Patience:
    """Waits longer after each failure that may pass, and gives up after some, or at once if it cannot pass."""

    def __init__(self, url: str) -> None:
        self.url, self.failures = url, 0

    def after(self, error: Exception, *, progress: bool = False) -> None:
        if isinstance(error, UserError):
            raise error
        reason, passing = _reason(error)
        self.failures = 1 if progress else self.failures + 1
        if not passing:
            raise UserError(
                f"'{self.url}' cannot be read: {reason}: check the address, and who may read it; {_GO_ON}"
            ) from error
        if self.failures >= TRIES:
            raise UserError(
                f"'{self.url}' cannot be read, tried {self.failures} times: {reason}: try again later; {_GO_ON}"
            ) from error
        pause = PAUSE * 2 ** (self.failures - 1)
        note(f"'{self.url}': {reason}; asking again in {pause:g} s")
        time.sleep(pause)


def _reason(error: BaseException) -> tuple[str, bool]:
    """In words, and whether it may pass."""
    if isinstance(error, FileNotFoundError) and error.__cause__ is not None:  # as fsspec calls whatever went wrong
        return _reason(error.__cause__)
    status = getattr(error, "status", None)
    if isinstance(status, int) and status:
        known = status in list(HTTPStatus)
        words = HTTPStatus(status).phrase if known else "error"
        return f"{words} (HTTP {status})", status >= 500 or status in _AGAIN
    if isinstance(error, FileNotFoundError):
        return "it does not exist", False
    if isinstance(error, PermissionError):
        return "access is forbidden", False
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT:g} s", True
    if type(error).__name__ == "ClientPayloadError":
        return "the answer broke off", True
    words = re.sub(r" ssl:\w+", "", " ".join(str(error).split())) or type(error).__name__  # aiohttp says it of http too
    ours = isinstance(error, ValueError)  # an address that is none
    return words, not ours and (isinstance(error, OSError) or _of_network(type(error)))


def _of_network(kind: type[BaseException]) -> bool:
    """Whether it is what a client of HTTP or of S3 raises where a connection fails. Neither may be imported here."""
    names = [f"{each.__module__}.{each.__name__}" for each in kind.__mro__]
    return any(name.startswith("aiohttp.") for name in names) or not _NO_CONNECTION.isdisjoint(names)
