"""Recognise what a file really is from its first bytes, to say more than "corrupt" (runtime §2.1).

Here: names of common wrong contents. Not here: the walkers, which decide whether the file is what it should be.
"""

from __future__ import annotations

HEAD_SIZE = 64
"""Bytes from the start of a file that `foreign_content` wants to see."""

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "a Git LFS pointer: fetch the real file, for example with `git lfs pull`"),
    (b"GGUF", "a GGUF model: name it .gguf"),
    (b"PK\x03\x04", "a zip archive: unpack it first"),
    (b"\x1f\x8b", "a gzip archive: unpack it first"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x80\x02", "a Python pickle"),
    (b"<", "an HTML or XML page: the download went wrong"),
    (b"{", "JSON text"),
)


def foreign_content(head: bytes) -> str | None:
    """Say what a file with these first bytes is, or None when nothing well known fits."""
    if not head:
        return "an empty file"
    if head[4:8] == b"ORTM":
        return "an ORT format model: name it .ort"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    for signature, meaning in _SIGNATURES:
        if head.startswith(signature) or (text.startswith(signature) and signature in (b"<", b"{")):
            return meaning
    return None
