"""The features of sound against those of transformers' `WhisperFeatureExtractor`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from genai.log_mel import log_mel

transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed")


def sound(kind: str) -> npt.NDArray[np.float32]:
    """A waveform."""
    random = np.random.default_rng(3)
    time = np.arange(64_000) / 16000
    sounds = {
        "noise": 0.1 * random.standard_normal(64_000),
        "tones": 0.3 * np.sin(2 * np.pi * 440 * time) + 1e-4 * np.sin(2 * np.pi * 3700 * time),
        "click": np.eye(1, 64_000, 30_000)[0],
        "window": 0.2 * random.standard_normal(480_000),
        "long": 0.2 * random.standard_normal(500_000),
    }
    samples: npt.NDArray[np.float32] = np.clip(sounds[kind], -1, 1).astype(np.float32)
    return samples


@pytest.mark.parametrize("kind", ["noise", "tones", "click", "window", "long"])
@pytest.mark.parametrize("mel_count", [80, 128])
def test_features_equal_those_of_transformers(kind: str, mel_count: int) -> None:
    samples = sound(kind)
    extractor = transformers.WhisperFeatureExtractor(feature_size=mel_count)
    expected = extractor(samples, sampling_rate=16000, return_tensors="np")["input_features"]
    np.testing.assert_allclose(log_mel(samples, mel_count), expected, atol=1e-5)
