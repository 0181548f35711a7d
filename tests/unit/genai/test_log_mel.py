"""The features of sound against a computation of the test's own: sums of sines and cosines, triangle by triangle."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from genai.log_mel import log_mel, mel_filters

Array = npt.NDArray[np.float64]


def noise(count: int) -> npt.NDArray[np.float32]:
    """A low hiss with a chirp in it."""
    time = np.arange(count) / 16000
    chirp = np.sin(2 * np.pi * (200 * time + 300 * time**2))
    return (0.02 * np.random.default_rng(5).standard_normal(count) + 0.4 * chirp).astype(np.float32)


def hertz(mel: float) -> float:
    """Slaney's scale backwards."""
    return 200 * mel / 3 if mel < 15 else 1000 * 6.4 ** ((mel - 15) / 27)


def reference(samples: npt.NDArray[np.float32], mel_count: int, frames: list[int]) -> Array:
    """The logarithm to the base of 10 of some columns, before it is held within 8 decades."""
    sound = np.concatenate([samples.astype(np.float64), np.zeros(480_000 - len(samples))])
    sound = np.concatenate([sound[200:0:-1], sound, sound[-2:-202:-1]])
    place = np.arange(400)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * place / 400)
    angles = 2 * np.pi * np.outer(np.arange(201), place) / 400
    corners = [hertz(number * (15 + 27 * np.log(8) / np.log(6.4)) / (mel_count + 1)) for number in range(mel_count + 2)]
    columns = []
    for frame in frames:
        piece = window * sound[160 * frame : 160 * frame + 400]
        power = (np.cos(angles) @ piece) ** 2 + (np.sin(angles) @ piece) ** 2
        column = []
        for low, middle, high in zip(corners, corners[1:], corners[2:], strict=False):
            at = 40.0 * np.arange(201)
            triangle = np.interp(at, [low, middle, high], [0, 1, 0]) * 2 / (high - low)
            column.append(np.log10(max(triangle @ power, 1e-10)))
        columns.append(column)
    return np.array(columns).T


@pytest.mark.parametrize("mel_count", [80, 128])
def test_features_equal_a_computation_from_first_principles(mel_count: int) -> None:
    samples, frames = noise(32_000), [0, 1, 2, 57, 120, 199, 200, 201, 202, 2999]
    features = log_mel(samples, mel_count)
    logarithm = reference(samples, mel_count, frames)
    highest = features.max() * 4 - 4
    np.testing.assert_allclose(features[0][:, frames] * 4 - 4, np.maximum(logarithm, highest - 8), atol=1e-5)
    assert abs(reference(samples, mel_count, [int(features[0].max(axis=0).argmax())]).max() - highest) < 1e-5


def test_a_full_window_is_reflected_at_its_end() -> None:
    samples = noise(480_000)
    features = log_mel(samples)
    logarithm = reference(samples, 80, [0, 1500, 2998, 2999])
    np.testing.assert_allclose(features[0][:, [0, 1500, 2998, 2999]] * 4 - 4, logarithm, atol=1e-5)


def test_shape_and_type() -> None:
    features = log_mel(np.zeros(16000, np.float32), 128)
    assert (features.shape, features.dtype) == ((1, 128, 3000), np.float32)
    assert features.flags.c_contiguous


def test_silence_is_one_number_everywhere() -> None:
    assert np.unique(log_mel(np.zeros(16000, np.float32))) == pytest.approx([-1.5])


def test_no_samples_are_silence() -> None:
    assert np.unique(log_mel(np.zeros(0, np.float32))) == pytest.approx([-1.5])


def test_a_tone_is_in_its_band() -> None:
    time = np.arange(16000) / 16000
    features = log_mel(np.sin(2 * np.pi * 440 * time).astype(np.float32))
    assert features[0, :, 50].argmax() == 11  # mel 6.6, in steps of 0.5586


def test_what_comes_after_30_seconds_is_left_out() -> None:
    samples = noise(480_160)
    np.testing.assert_array_equal(log_mel(samples), log_mel(samples[:480_000]))


def test_silence_behind_the_sound_changes_nothing() -> None:
    samples = noise(20_000)
    padded = np.concatenate([samples, np.zeros(460_000, np.float32)])
    np.testing.assert_array_equal(log_mel(samples), log_mel(padded))


def test_the_samples_stay_as_they_are() -> None:
    samples = noise(800)
    before = samples.copy()
    log_mel(samples)
    np.testing.assert_array_equal(samples, before)


def test_two_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="mono"):
        log_mel(np.zeros((2, 100), np.float32))


def test_filters_are_made_once_and_cannot_be_changed() -> None:
    filters = mel_filters(80)
    assert mel_filters(80) is filters
    assert filters.shape == (201, 80)
    with pytest.raises(ValueError, match="read-only"):
        filters[0, 0] = 1
