"""A Hugging Face hub on the loopback: enough of it for the hub's own client to fetch sets from."""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest


@dataclass
class Hub:
    """`sets` are files by commit by repository, `branches` commits by (repository, branch)."""

    sets: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)
    branches: dict[tuple[str, str], str] = field(default_factory=dict)
    closed: dict[str, str] = field(default_factory=dict)  # the hub's word for why, by repository
    asked: list[str] = field(default_factory=list)

    def push(self, repository: str, files: Mapping[str, bytes], branch: str = "main") -> str:
        parts = [branch.encode(), *(part for name, data in files.items() for part in (name.encode(), data))]
        commit = hashlib.sha1(b"\0".join(parts)).hexdigest()
        self.sets.setdefault(repository, {})[commit] = dict(files)
        self.branches[repository, branch] = commit
        return commit

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and content."""
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if len(parts) < 4:  # what the client asks for its own ends
            return 404, {}, b""
        self.asked.append(path)
        api = parts[:2] == ["api", "datasets"]
        owner, name, what, revision, *rest = parts[2 if api else 1 :]
        repository = f"{owner}/{name}"
        if (why := self.closed.get(repository)) and not (api and why == "GatedRepo"):
            return 401 if why == "RepoNotFound" else 403, {"X-Error-Code": why}, b""
        if repository not in self.sets:
            return 401, {"X-Error-Code": "RepoNotFound"}, b""
        commit = self.branches.get((repository, revision), revision)
        if (files := self.sets[repository].get(commit)) is None:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        if what == "revision":
            siblings = [{"rfilename": each} for each in files]
            return 200, {}, json.dumps({"id": repository, "sha": commit, "siblings": siblings}).encode()
        if what == "tree":
            tree = [
                {"type": "file", "path": each, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for each, data in files.items()
            ]
            return 200, {}, json.dumps(tree).encode()
        data = files["/".join(rest)]
        return 200, {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": commit}, data


@contextmanager
def serving(cache: Path) -> Iterator[Hub]:
    """The hub, to which the client of this process turns for as long as it lasts, with a cache of its own."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, content = hub.answer(urlsplit(self.path).path)
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(content))}).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            here = f"http://127.0.0.1:{server.server_port}"
            patch.setattr("huggingface_hub.constants.ENDPOINT", here)
            address = here + "/{repo_id}/resolve/{revision}/{filename}"
            patch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", address)
            patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
            patch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_PROGRESS_BARS", True)
            yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
