"""A real HTTP server on this machine, with the faults that servers have."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit


@dataclass
class Server:
    """Serves the files of a directory, and counts what it was asked for."""

    root: Path
    url: str = ""
    ranges: bool = True
    tags: bool = True  # ETags; else times of change
    cut: int | None = None  # bytes after which the next connections break off,
    cuts: int = 0  # so many of them
    errors: list[int] = field(default_factory=list)  # of the next answers
    slow: float = 0.0  # seconds before an answer
    requests: list[tuple[str, str, str]] = field(default_factory=list)  # method, name, range

    def fetched(self) -> list[str]:
        return [name for method, name, _ in self.requests if method == "GET"]


@contextmanager
def serving(root: Path) -> Iterator[Server]:
    server = Server(root)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, *, body: bool) -> None:
            name = urlsplit(self.path).path.lstrip("/")
            asked = self.headers.get("Range", "")
            server.requests.append((self.command, name, asked))
            time.sleep(server.slow)
            path = server.root / name
            if server.errors or not path.exists():
                self.send_error(server.errors.pop(0) if server.errors else 404)
                return
            if path.is_dir():
                links = "".join(f'<a href="{each.name}">{each.name}</a>' for each in sorted(path.iterdir()))
                content, kind = f"<!DOCTYPE html><html>{links}</html>".encode(), "text/html"
            else:
                content, kind = path.read_bytes(), "application/x-tar"
            part = re.fullmatch(r"bytes=(\d+)-", asked) if server.ranges else None
            start = int(part[1]) if part else 0
            self.send_response(206 if part else 200)
            if part:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content) - start))
            if server.tags:
                self.send_header("ETag", f'"{md5(content).hexdigest()[:8]}"')
            self.send_header("Last-Modified", formatdate(path.stat().st_mtime, usegmt=True))
            self.end_headers()
            rest = content[start:]
            if body and server.cuts:
                server.cuts -= 1
                self.wfile.write(rest[: server.cut])
                self.wfile.flush()
                time.sleep(0.1)  # a client may drop what it had not taken by then
                self.close_connection = True
            elif body:
                self.wfile.write(rest)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Clients that hang up are what some tests are about."""

    with Quiet(("127.0.0.1", 0), Handler) as http:
        server.url = f"http://127.0.0.1:{http.server_port}"
        threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield server
        http.shutdown()
