"""WAV out of a pipe: headers without a length, kinds of samples, what is refused, and how much is read."""

from __future__ import annotations

import io
import os
import select
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes.piped import Pipe
from genai import WinMLError, wave_stream
from genai.codes import FILE_CORRUPT, NOT_SUPPORTED
from genai.pipe_reader import PipeReader
from genai.wave_stream import is_stream, wave_blocks

if sys.platform == "linux":
    import fcntl

RATE = 16000


def wav(
    samples: Any,
    *,
    kind: int = 1,
    bits: int = 16,
    channels: int = 1,
    rate: int = RATE,
    length: int | None = None,
    before: bytes = b"",
    extension: bytes = b"",
) -> bytes:
    """A WAV; `length` is what the header says of the samples, None the truth."""
    data = samples if isinstance(samples, bytes) else np.asarray(samples).tobytes()
    frame = channels * bits // 8
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * frame, frame, bits) + extension
    said = len(data) if length is None else length
    return (
        struct.pack("<4sI4s", b"RIFF", 0, b"WAVE")
        + before
        + struct.pack("<4sI", b"fmt ", len(form))
        + form
        + struct.pack("<4sI", b"data", said)
        + data
    )


def heard(content: bytes, **options: Any) -> list[float]:
    """The samples of a WAV in a pipe."""
    blocks = list(wave_blocks(Pipe(content, **options), RATE))
    return [float(sample) for block in blocks for sample in block]


HALVES = np.array([16384, -16384, 8192], "<i2")


class TestLength:
    @pytest.mark.parametrize("length", [0, 0x7FFFF000, 0x7FFFFF00, 0x80000000, 0xFFFFFFFF])
    def test_a_recorder_that_does_not_know_it(self, length: int) -> None:
        assert heard(wav(HALVES, length=length)) == [0.5, -0.5, 0.25]

    def test_what_stands_behind_the_samples_is_no_sound(self) -> None:
        assert heard(wav(HALVES) + b"LIST\4\0\0\0abcd") == [0.5, -0.5, 0.25]

    def test_a_pipe_that_ends_early(self) -> None:
        assert heard(wav(HALVES, length=1000)) == [0.5, -0.5, 0.25]

    def test_half_a_sample_at_the_end(self) -> None:
        assert heard(wav(HALVES.tobytes() + b"a", length=0)) == [0.5, -0.5, 0.25]

    def test_no_samples(self) -> None:
        assert heard(wav(b"")) == []


class TestSamples:
    @pytest.mark.parametrize(
        ("kind", "bits", "data"),
        [
            (1, 8, np.array([192, 64], np.uint8)),
            (1, 24, bytes([0, 0, 0x40, 0, 0, 0xC0])),
            (1, 32, np.array([1 << 30, -1 << 30], "<i4")),
            (3, 32, np.array([0.5, -0.5], "<f4")),
            (3, 64, np.array([0.5, -0.5], "<f8")),
        ],
    )
    def test_kinds(self, kind: int, bits: int, data: Any) -> None:
        assert heard(wav(data, kind=kind, bits=bits)) == [0.5, -0.5]

    def test_the_extensible_form(self) -> None:
        extension = struct.pack("<HHIH", 22, 16, 4, 1) + bytes(14)
        assert heard(wav(HALVES, kind=0xFFFE, extension=extension)) == [0.5, -0.5, 0.25]

    def test_channels_become_one(self) -> None:
        assert heard(wav(np.array([[16384, 0], [8192, 8192]], "<i2"), channels=2)) == [0.25, 0.25]

    def test_another_rate(self) -> None:
        pytest.importorskip("soxr")
        assert len(heard(wav(np.zeros(24000, "<i2"), rate=48000))) == 8000

    def test_chunks_before_them_are_passed_over(self) -> None:
        before = struct.pack("<4sI", b"JUNK", 5) + b"abcde\0" + struct.pack("<4sI", b"LIST", 200_000) + bytes(200_000)
        assert heard(wav(HALVES, before=before)) == [0.5, -0.5, 0.25]

    def test_a_pipe_that_gives_little_at_a_time(self) -> None:
        assert heard(wav(HALVES), at_once=3) == [0.5, -0.5, 0.25]


def test_blocks_come_as_they_are_read() -> None:
    pipe = Pipe(wav(np.zeros(RATE, "<i2"), length=0))
    blocks = wave_blocks(pipe, RATE)
    assert pipe.taken == 0
    assert [(len(next(blocks)), pipe.taken) for _ in range(2)] == [(1600, 44 + 3200), (1600, 44 + 6400)]


def test_a_block_is_small_whatever_the_rate_says() -> None:
    pipe = Pipe(wav(np.zeros(100_000, "<i2"), rate=2_000_000_000, length=0))
    assert len(next(wave_blocks(pipe, 2_000_000_000))) == 16384


def test_the_file_of_a_caller_is_left_open() -> None:
    pipe = Pipe(wav(HALVES))
    list(wave_blocks(pipe, RATE))
    assert not pipe.closed


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_named_pipe(tmp_path: Path) -> None:
    path = tmp_path / "microphone"
    os.mkfifo(path)
    assert is_stream(path)
    writer = os.open(path, os.O_RDWR)
    try:
        os.write(writer, wav(np.full(2000, 16384, "<i2"), length=0))
        blocks = wave_blocks(path, RATE)
        assert next(blocks).tolist() == [0.5] * 1600
        blocks.close()  # type: ignore[attr-defined]
    finally:
        os.close(writer)


def test_a_pipe_of_the_system() -> None:
    reader, writer = os.pipe()
    os.write(writer, wav(HALVES, length=0))
    os.close(writer)
    with open(reader, "rb") as file:
        assert is_stream(file)
        assert np.concatenate(list(wave_blocks(file, RATE))).tolist() == [0.5, -0.5, 0.25]


@pytest.mark.skipif(not hasattr(select, "poll"), reason="this system cannot tell whether a pipe holds something")
@pytest.mark.parametrize("given", [0, 20, 44, 46])
def test_blocks_without_samples_while_nothing_comes(given: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wave_stream, "_LOOK_AGAIN", 0)
    content = wav(HALVES, length=0)
    reader, writer = os.pipe()
    with open(reader, "rb") as file, open(writer, "wb", buffering=0) as pipe:
        pipe.write(content[:given])
        blocks = wave_blocks(file, RATE)
        assert [len(next(blocks)) for _ in range(3)] == [0, 0, 0]
        pipe.write(content[given:])
        pipe.close()
        assert np.concatenate(list(blocks)).tolist() == [0.5, -0.5, 0.25]


def test_blocks_without_samples_at_another_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("soxr")
    comes = iter([True] * 5 + [False] * 3 + [True] * 9)  # four parts of the header, and then a block in two
    monkeypatch.setattr(PipeReader, "has_come", lambda pipe, seconds: next(comes, True))
    blocks = list(wave_blocks(Pipe(wav(np.zeros(9600, "<i2"), rate=48000)), RATE))
    assert sum(map(len, blocks)) == 3200


def test_a_pipe_that_says_it_can_seek() -> None:
    reader, writer = os.pipe()
    os.close(writer)
    with open(reader, "rb", buffering=0) as file:
        file.seekable = lambda: True  # type: ignore[method-assign]
        assert is_stream(file)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can be told how much a pipe holds")
def test_a_pipe_is_made_to_hold_half_a_minute() -> None:
    reader, writer = os.pipe()
    os.write(writer, wav(np.zeros(1600, "<i2"), length=0))
    with open(reader, "rb") as file:
        assert fcntl.fcntl(reader, fcntl.F_GETPIPE_SZ) < 1 << 20
        next(wave_blocks(file, RATE))
        assert fcntl.fcntl(reader, fcntl.F_GETPIPE_SZ) == 1 << 20
    os.close(writer)


@pytest.mark.parametrize("source", [io.BytesIO(), b"RIFF", "nowhere.wav", Path("nowhere.wav"), "a\0b", [], None])
def test_what_is_no_pipe(source: Any) -> None:
    assert not is_stream(source)


class TestRefusals:
    @pytest.mark.parametrize("content", [b"fLaC" + bytes(40), b"RIFF\0\0\0\0AVI " + bytes(40), b"RIFX" + bytes(40)])
    def test_what_is_no_wav(self, content: bytes) -> None:
        with pytest.raises(WinMLError, match="must be WAV; `ffmpeg -i INPUT -f wav -`") as caught:
            heard(content)
        assert caught.value.hresult == NOT_SUPPORTED

    def test_a_header_without_end(self) -> None:
        pipe = Pipe(wav(HALVES, before=b"LIST" + (1 << 24).to_bytes(4, "little")))
        with pytest.raises(WinMLError, match="none in the first 16 MiB") as caught:
            list(wave_blocks(pipe, RATE))
        assert (caught.value.hresult, pipe.taken) == (FILE_CORRUPT, 20)

    @pytest.mark.parametrize("bits", [0x7E37E43C8800759C, 0x7FF0000000000001])  # 1e300, a NaN that signals
    def test_what_32_bits_do_not_hold(self, bits: int) -> None:
        with pytest.raises(WinMLError, match=r"damaged after 0.0 s: a sample is not a finite number"):
            heard(wav(struct.pack("<Q", bits), kind=3, bits=64))

    def test_nothing(self) -> None:
        with pytest.raises(WinMLError, match="nothing came before the end") as caught:
            heard(b"")
        assert caught.value.hresult == FILE_CORRUPT

    @pytest.mark.parametrize("length", [3, 11, 20, 30, 43])
    def test_a_header_that_is_cut_off(self, length: int) -> None:
        with pytest.raises(WinMLError, match="ends within the header") as caught:
            heard(wav(HALVES)[:length])
        assert caught.value.hresult == FILE_CORRUPT

    @pytest.mark.parametrize(
        "options",
        [
            {"kind": 2},
            {"kind": 3},
            {"bits": 12},
            {"channels": 0},
            {"channels": 65},
            {"rate": 0},
            {"kind": 0xFFFE},
        ],
    )
    def test_samples_of_another_kind(self, options: dict[str, int]) -> None:
        with pytest.raises(WinMLError, match=r"not read as it comes: .* bits at") as caught:
            heard(wav(HALVES, **options))  # type: ignore[arg-type]
        assert caught.value.hresult == NOT_SUPPORTED

    def test_no_format(self) -> None:
        with pytest.raises(WinMLError, match="does not say its format"):
            heard(b"RIFF\0\0\0\0WAVEdata\0\0\0\0")

    def test_samples_that_are_no_numbers(self) -> None:
        samples = np.zeros(2000, "<f4")
        samples[1700] = np.nan
        with pytest.raises(WinMLError, match=r"damaged after 0.1 s: a sample is not a finite number"):
            heard(wav(samples, kind=3, bits=32))

    def test_text(self) -> None:
        with pytest.raises(TypeError, match="binary mode; read gave str"):
            list(wave_blocks(io.StringIO("RIFF"), RATE))
