"""A loopback HTTP server for downloads: serves bytes, counts requests, and misbehaves on demand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FileServer:
    """What the server does; change it between requests.

    has_ranges: answer `Range` with 206. cut_after: send only so many bytes of an answer, this often (`cuts`).
    statuses: answer the next requests with these codes first. redirects: path to address.
    """

    content: dict[str, bytes] = field(default_factory=dict)
    etag: str = '"one"'
    has_ranges: bool = True
    cut_after: int = 0
    cuts: int = 0
    statuses: list[int] = field(default_factory=list)
    redirects: dict[str, str] = field(default_factory=dict)
    range_shift: int = 0
    requests: list[dict[str, str]] = field(default_factory=list)
    address: str = ""

    def asked(self, header: str) -> list[str | None]:
        """The values of one header over all requests, None where a request had none."""
        return [request.get(header) for request in self.requests]


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        plan = self.server.plan
        plan.requests.append({"Path": self.path, **dict(self.headers.items())})
        self.close_connection = True
        if plan.statuses:
            return self._answer(plan.statuses.pop(0))
        if self.path in plan.redirects:
            return self._answer(302, Location=plan.redirects[self.path])
        body = plan.content.get(self.path)
        if body is None:
            return self._answer(404)
        start, asked = 0, self.headers.get("Range")
        if asked and plan.has_ranges and self.headers.get("If-Range", plan.etag) == plan.etag:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            if start >= len(body):
                return self._answer(416)
            place = f"bytes {start + plan.range_shift}-{len(body) - 1}/{len(body)}"
            self._answer(206, len(body) - start, ETag=plan.etag, **{"Content-Range": place})
        else:
            self._answer(200, len(body), ETag=plan.etag)
        end = len(body)
        if plan.cut_after and plan.cuts:
            plan.cuts -= 1
            end = start + plan.cut_after
        self.wfile.write(body[start:end])

    def _answer(self, status: int, length: int = 0, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(length), "Connection": "close", **headers}.items():
            if value:
                self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


class _Server(ThreadingHTTPServer):
    plan: FileServer


@contextmanager
def serve(content: dict[str, bytes]) -> Iterator[FileServer]:
    """Serve `content` (path to bytes) on the loopback interface."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.plan = FileServer(content, address=f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.plan
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
