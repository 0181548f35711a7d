"""Getting one file over HTTP: resumed where it broke off, verified, and there only when it is complete.

The bytes go to `<file>.part`. What is there already is asked for no more (`Range`, guarded by `If-Range` with the ETag
or date that came with it). Proxies come from the environment, certificates from the system and `SSL_CERT_FILE`.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from winml_lite import WinMLError

from .codes import FILE_CORRUPT, FILE_NOT_FOUND

Progress = Callable[[int, int], None]
"""Called with the bytes that are there and the bytes in all (0 where the server does not say)."""

BLOCK_BYTES = 1 << 20
TIMEOUT_SECONDS = 60.0
RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0)
"""Pauses after attempts that brought nothing new; when they are used up the download fails."""
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
_RANGE_NOT_SATISFIABLE = 416


@dataclass(frozen=True, slots=True)
class Download:
    """What to get and how. `ca_file` adds trusted certificates (a file or a folder), `proxy` replaces the
    environment's.
    """

    url: str
    path: Path
    sha256: str | None = None
    ca_file: str | None = None
    proxy: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def part(self) -> Path:
        """The unfinished file."""
        return self.path.with_name(self.path.name + ".part")

    @property
    def tag(self) -> Path:
        """Holds the validator of the unfinished file."""
        return self.path.with_name(self.path.name + ".part.tag")

    @property
    def shown_url(self) -> str:
        """The address without user name, password and query."""
        parts = urllib.parse.urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def fetch(download: Download, progress: Progress | None = None) -> Path:
    """Get a file and return its path.

    Raises WinMLError 0x80070002 when the server cannot be reached or has no such file, 0x80070570 when the bytes are
    not those of `sha256`. An interrupted download stays beside `path` and is continued by the next call.
    """
    download.path.parent.mkdir(parents=True, exist_ok=True)
    opener = _opener(download)
    for _ in range(2):
        was_resumed = download.part.exists()
        _receive_all(opener, download, progress)
        actual = file_sha256(download.part)
        if download.sha256 in (None, actual):
            os.replace(download.part, download.path)
            download.tag.unlink(missing_ok=True)
            return download.path
        _drop(download)
        if not was_resumed:
            break
    reason = f"the bytes are not the expected ones: sha256 is {actual}, not {download.sha256}"
    raise WinMLError(FILE_CORRUPT, download.shown_url, reason)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _opener(download: Download) -> urllib.request.OpenerDirector:
    context = ssl.create_default_context()
    if download.ca_file:
        place = {"capath" if Path(download.ca_file).is_dir() else "cafile": download.ca_file}
        try:
            context.load_verify_locations(**place)
        except (OSError, ssl.SSLError) as error:
            raise _failure(download, f"the certificates {download.ca_file} cannot be read: {error}") from error
    proxies = {"http": download.proxy, "https": download.proxy} if download.proxy else None
    return urllib.request.build_opener(
        urllib.request.ProxyHandler(proxies), urllib.request.HTTPSHandler(context=context), _Redirects()
    )


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but tells no other server the headers that are for the first one."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and following.host != req.host:
            following.remove_header("Authorization")
        return following


def _receive_all(opener: urllib.request.OpenerDirector, download: Download, progress: Progress | None) -> None:
    """Fill the part file, in as many attempts as bring something new."""
    failures = 0
    while True:
        before = _size(download.part)
        try:
            if _receive(opener, download, progress):
                return
            reason: object = "the connection ended early"
        except urllib.error.HTTPError as error:
            with error:
                if error.code == _RANGE_NOT_SATISFIABLE and before:
                    if download.sha256 is not None and file_sha256(download.part) == download.sha256:
                        return
                    _drop(download)
                elif error.code not in _PASSING:
                    raise _failure(download, f"the server answered {error.code} {error.reason}") from error
                reason = f"the server answered {error.code} {error.reason}"
        except (urllib.error.URLError, TimeoutError, ConnectionError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, ssl.SSLCertVerificationError):
                mend = "SSL_CERT_FILE names a file of trusted ones"
                raise _failure(download, f"its certificate is not trusted ({reason.verify_message}); {mend}") from error
        if _size(download.part) > before:
            failures = 0
            continue
        if failures == len(RETRY_SECONDS):
            raise _failure(download, f"{reason}; call again to go on from {_size(download.part):,} bytes")
        time.sleep(RETRY_SECONDS[failures])
        failures += 1


def _receive(opener: urllib.request.OpenerDirector, download: Download, progress: Progress | None) -> bool:
    """Ask once for what is missing and store what comes; return whether the file is complete."""
    request = urllib.request.Request(download.url, headers={**_HEADERS, **download.headers})
    validator = _read_tag(download)
    done = _size(download.part)
    if done and validator is None and download.sha256 is None:
        done = 0  # nothing would tell whether the two halves belong together
    if done:
        request.add_header("Range", f"bytes={done}-")
        if validator is not None:
            request.add_header("If-Range", validator)
    with opener.open(request, timeout=TIMEOUT_SECONDS) as response:
        total = int(response.headers.get("Content-Length") or 0)
        if done and response.status == http.client.PARTIAL_CONTENT:
            given = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
            if given is None or int(given[1]) != done:
                _drop(download)
                return False
            total = int(given[2]) if given[2] != "*" else done + total
        else:
            done = 0  # all of it: a server without ranges, or a file that has changed
            _write_tag(download, response.headers)
        with download.part.open("ab" if done else "wb") as file:
            while block := response.read(BLOCK_BYTES):
                file.write(block)
                done += len(block)
                if progress is not None:
                    progress(done, total)
    return total in (0, done)


_HEADERS = {"User-Agent": "winml-lite", "Accept-Encoding": "identity"}


def _read_tag(download: Download) -> str | None:
    try:
        return download.tag.read_text(encoding="ascii") or None
    except OSError:
        return None


def _write_tag(download: Download, headers: http.client.HTTPMessage) -> None:
    """Keep the validator; a weak ETag promises no equal bytes."""
    tag = headers.get("ETag", "")
    validator = tag if tag.startswith('"') else headers.get("Last-Modified", "")
    download.tag.write_text(validator, encoding="ascii", errors="replace")


def _drop(download: Download) -> None:
    download.part.unlink(missing_ok=True)
    download.tag.unlink(missing_ok=True)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _failure(download: Download, reason: str) -> WinMLError:
    return WinMLError(FILE_NOT_FOUND, download.shown_url, f"the download failed: {reason}")
