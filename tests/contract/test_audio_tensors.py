"""Tensors of sound: statements 49-53 of tensors. What is expected is worked out here, sample by sample."""

from __future__ import annotations

import array
import math
import struct
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fakes.rig import failing
from fakes.staged import DeviceStorage
from winml_lite import AudioTensorOptions, Runtime, Tensor, TensorDataType, TensorLayout, TensorLockMode, WinMLError

T = TensorDataType
NT, NCT = TensorLayout.NT, TensorLayout.NCT
Array = npt.NDArray[Any]


def sound(runtime: Runtime, samples: Any, **options: Any) -> Tensor:
    """The tensor of an array, at 16 kHz."""
    return runtime.tensor_from_audio(samples, sample_rate=16000, options=AudioTensorOptions(**options))


def written(runtime: Runtime, values: Array, sample_format: str) -> list[Any]:
    """The samples that come out of a tensor of one channel."""
    data = runtime.audio_bytes_from_tensor(
        runtime.tensor_from_numpy(values.reshape(1, -1)), sample_rate=16000, channels=1, sample_format=sample_format
    )
    code = {"int16": "h", "int32": "i", "float32": "f"}[sample_format]
    return list(struct.unpack(f"<{values.size}{code}", data))


# Sample values


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (np.array([-32768, 0, 16384, 32767], np.int16), [-1, 0, 0.5, 0.999969482421875]),
        (np.array([0, 128, 255], np.uint8), [-1, 0, 0.9921875]),
        (np.array([-(2**31), 2**30, 256, -256], np.int32), [-1, 0.5, 2.0**-23, -(2.0**-23)]),
        (np.array([0.5, -3, math.inf], np.float32), [0.5, -3, math.inf]),
    ],
)
def test_t49_samples_become_numbers(runtime: Runtime, samples: Array, expected: list[float]) -> None:
    tensor = sound(runtime, samples)
    assert tensor.desc() == (T.FLOAT32, (1, len(samples)))
    assert tensor.to_numpy().tolist() == [expected]


def test_t49_bytes_are_interleaved_little_endian_samples(runtime: Runtime) -> None:
    data = struct.pack("<6h", 1, -2, 3, -4, 5, -6)
    tensor = runtime.tensor_from_audio(data, sample_rate=44100, channels=2, sample_format="int16")
    assert tensor.desc() == (T.FLOAT32, (1, 2, 3))
    assert (tensor.to_numpy() * 32768).tolist() == [[[1, 3, 5], [-2, -4, -6]]]


@pytest.mark.parametrize(
    ("sample_format", "data", "expected"),
    [
        ("uint8", bytes([0, 64, 255]), [-1, -0.5, 0.9921875]),
        ("int32", struct.pack("<2i", -(2**31), 2**29), [-1, 0.25]),
        ("float32", struct.pack("<2f", 0.75, -2), [0.75, -2]),
    ],
)
def test_t49_formats_of_bytes(runtime: Runtime, sample_format: str, data: bytes, expected: list[float]) -> None:
    for given in (data, bytearray(data), memoryview(data), memoryview(b"x" + data)[1:]):
        tensor = runtime.tensor_from_audio(given, sample_rate=8000, channels=1, sample_format=sample_format)
        assert tensor.to_numpy().tolist() == [expected]


def test_t49_a_scattered_memoryview_is_packed(runtime: Runtime) -> None:
    view = memoryview(bytes([0, 9, 128, 9, 255, 9]))[::2]
    tensor = runtime.tensor_from_audio(view, sample_rate=8000, channels=1, sample_format="uint8")
    assert tensor.to_numpy().tolist() == [[-1, 0, 0.9921875]]


def test_t49_an_array_of_another_byte_order_or_stride(runtime: Runtime) -> None:
    assert sound(runtime, np.array([16384], ">i2")).to_numpy().tolist() == [[0.5]]
    assert sound(runtime, np.arange(0, 32768, 4096).astype(np.int16)[::-2]).to_numpy().tolist() == [
        [0.875, 0.625, 0.375, 0.125]
    ]


def test_t49_an_array_of_the_standard_library(runtime: Runtime) -> None:
    assert sound(runtime, array.array("h", [-32768, 16384])).to_numpy().tolist() == [[-1, 0.5]]


def test_t49_large_integers_are_rounded_once(runtime: Runtime) -> None:
    values = np.random.default_rng(1).integers(-(2**31), 2**31, 1000).astype(np.int32)
    expected = [np.float32(int(value) / 2**31) for value in values]  # the quotient is exact in double
    assert sound(runtime, values).to_numpy()[0].tolist() == expected


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.int32, np.float32])
def test_t49_float16_is_rounded_once(runtime: Runtime, kind: Any) -> None:
    values = np.random.default_rng(2).integers(0, 127, 500).astype(kind) * kind(2)
    scale = {np.uint8: 128, np.int16: 2**15, np.int32: 2**31, np.float32: 1}[kind]
    bias = 128 if kind is np.uint8 else 0
    expected = [np.float16((float(value) - bias) / scale) for value in values]
    tensor = sound(runtime, values, data_type=T.FLOAT16)
    assert tensor.desc() == (T.FLOAT16, (1, 500))
    assert tensor.to_numpy()[0].tolist() == expected


def test_t49_what_float16_cannot_hold_is_infinite(runtime: Runtime) -> None:
    samples = np.array([1e6, -1e6, math.nan], np.float32)
    np.testing.assert_array_equal(
        sound(runtime, samples, data_type=T.FLOAT16).to_numpy(), [[math.inf, -math.inf, math.nan]]
    )


# Back to samples


def test_t50_every_int16_survives(runtime: Runtime) -> None:
    values = np.arange(-32768, 32768).astype(np.int16)
    tensor = sound(runtime, values)
    data = runtime.audio_bytes_from_tensor(tensor, sample_rate=16000, channels=1)
    assert data == values.astype("<i2").tobytes()


def test_t50_every_int16_survives_in_two_channels(runtime: Runtime) -> None:
    values = np.stack([np.arange(-32768, 32768), np.arange(32767, -32769, -1)], axis=1).astype(np.int16)
    data = sound(runtime, values).to_audio_bytes(sample_rate=16000, channels=2)
    assert data == values.astype("<i2").tobytes()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2.0, 32767),
        (-2.0, -32768),
        (1.0, 32767),
        (math.inf, 32767),
        (-math.inf, -32768),
        (math.nan, 0),
        (0.5 / 32768, 0),
        (1.5 / 32768, 2),
        (2.5 / 32768, 2),
        (-0.5 / 32768, 0),
        (-1.5 / 32768, -2),
        (3e38, 32767),
    ],
)
def test_t50_int16_is_rounded_half_to_even_and_clamped(runtime: Runtime, value: float, expected: int) -> None:
    assert written(runtime, np.array([value], np.float32), "int16") == [expected]


def test_t50_int32_is_worked_out_in_double(runtime: Runtime) -> None:
    values = np.array([1, -1, 2, 0.1, 1 - 2**-24, 2.0**-32, 3 * 2.0**-32, math.nan], np.float32)
    tenth = round(Fraction(float(np.float32(0.1))) * 2**31)
    expected = [2**31 - 1, -(2**31), 2**31 - 1, tenth, 2**31 - 128, 0, 2, 0]
    assert written(runtime, values, "int32") == expected


def test_t50_float32_is_unchanged(runtime: Runtime) -> None:
    values = np.array([2.5, -1e-20, 3e38, math.inf], np.float32)
    assert written(runtime, values, "float32") == values.tolist()


def test_t50_float16_is_written(runtime: Runtime) -> None:
    values = np.array([0.5, -1, 1, 2.0**-16], np.float16)
    assert written(runtime, values, "int16") == [16384, -32768, 32767, 0]
    assert written(runtime, values, "float32") == values.tolist()


def test_t50_planes_are_interleaved(runtime: Runtime) -> None:
    tensor = runtime.tensor_from_numpy(np.array([[[0.5, 0.25], [-0.5, -0.25]]], np.float32))
    data = tensor.to_audio_bytes(sample_rate=8000, channels=2, sample_format="float32")
    assert struct.unpack("<4f", data) == (0.5, -0.5, 0.25, -0.25)


def test_t50_no_samples_are_no_bytes(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.FLOAT32, (1, 0))
    assert tensor.to_audio_bytes(sample_rate=8000, channels=1) == b""


def test_t50_long_sound_is_converted_in_every_part(runtime: Runtime) -> None:
    values = np.random.default_rng(3).integers(-32768, 32768, (150000, 2)).astype(np.int16)
    data = sound(runtime, values).to_audio_bytes(sample_rate=16000, channels=2)
    assert np.array_equal(np.frombuffer(data, "<i2").reshape(-1, 2), values)


def test_t50_memory_that_the_cpu_cannot_reach_is_read_through_a_copy(runtime: Runtime) -> None:
    tensor = Tensor(DeviceStorage(struct.pack("<2f", 0.5, -1), T.FLOAT32, (1, 2)), runtime._core)
    assert tensor.to_audio_bytes(sample_rate=8000, channels=1) == struct.pack("<2h", 16384, -32768)


# Channels and layouts


def test_t51_channels_become_planes(runtime: Runtime) -> None:
    tensor = sound(runtime, np.array([[1, -1], [2, -2], [3, -3]], np.float32))
    assert tensor.desc() == (T.FLOAT32, (1, 2, 3))
    assert tensor.to_numpy().tolist() == [[[1, 2, 3], [-1, -2, -3]]]


def test_t51_one_channel_is_the_mean(runtime: Runtime) -> None:
    tensor = sound(runtime, np.array([[1, 3], [-2, 1]], np.float32), channels=1)
    assert tensor.desc() == (T.FLOAT32, (1, 2))
    assert tensor.to_numpy().tolist() == [[2, -0.5]]


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.int32, np.float32])
@pytest.mark.parametrize("count", [2, 3, 6, 64])
def test_t51_the_mean_of_many_channels(runtime: Runtime, kind: Any, count: int) -> None:
    generator = np.random.default_rng(count)
    values = (
        generator.uniform(0, 200, (70000, count)) if kind is np.uint8 else generator.uniform(-99, 99, (70000, count))
    )
    samples = values.astype(kind)
    scale, bias = {np.uint8: (128, 128), np.int16: (2**15, 0), np.int32: (2**31, 0), np.float32: (1, 0)}[kind]
    expected = (samples.astype(np.float64).mean(axis=1) - bias) / scale
    result = sound(runtime, samples, channels=1).to_numpy()[0]
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-9)


def test_t51_the_mean_of_integers_does_not_overflow(runtime: Runtime) -> None:
    samples = np.full((1, 2), -(2**31), np.int32)
    assert sound(runtime, samples, channels=1).to_numpy().tolist() == [[-1]]


def test_t51_one_channel_is_copied_to_many(runtime: Runtime) -> None:
    tensor = sound(runtime, np.array([16384, -32768], np.int16), channels=3)
    assert tensor.to_numpy().tolist() == [[[0.5, -1]] * 3]


@pytest.mark.parametrize(("source", "wanted"), [(2, 3), (6, 2), (3, 64)])
def test_t51_other_changes_of_channels(runtime: Runtime, source: int, wanted: int) -> None:
    with failing(0x80070057):
        sound(runtime, np.zeros((4, source), np.float32), channels=wanted)


@pytest.mark.parametrize("layout", [None, TensorLayout.UNSPECIFIED, NT, 0, 17])
def test_t51_one_channel_is_nt(runtime: Runtime, layout: Any) -> None:
    assert sound(runtime, np.zeros(3, np.float32), layout=layout).desc()[1] == (1, 3)


@pytest.mark.parametrize("layout", [None, TensorLayout.UNSPECIFIED, NCT, 16])
def test_t51_two_channels_are_nct(runtime: Runtime, layout: Any) -> None:
    assert sound(runtime, np.zeros((3, 2), np.float32), layout=layout).desc()[1] == (1, 2, 3)


def test_t51_one_channel_can_be_nct(runtime: Runtime) -> None:
    assert sound(runtime, np.zeros((3, 1), np.float32), layout=NCT).desc()[1] == (1, 1, 3)


@pytest.mark.parametrize("layout", [NT, TensorLayout.NCHW, TensorLayout.NHWC, TensorLayout.NL, 99, "NT"])
def test_t51_layouts_that_two_channels_do_not_have(runtime: Runtime, layout: Any) -> None:
    with pytest.raises(ValueError, match="layout"):
        sound(runtime, np.zeros((3, 2), np.float32), layout=layout)


# Windows


def test_t52_windows_with_a_hop(runtime: Runtime) -> None:
    tensor = sound(runtime, np.arange(10, dtype=np.float32), window_frames=4, hop_frames=3)
    assert tensor.desc() == (T.FLOAT32, (3, 4))
    assert tensor.to_numpy().tolist() == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]


def test_t52_short_sound_is_one_window_with_zeros(runtime: Runtime) -> None:
    tensor = sound(runtime, np.array([1, 2, 3], np.float32), window_frames=4)
    assert tensor.to_numpy().tolist() == [[1, 2, 3, 0]]


@pytest.mark.parametrize(
    ("frames", "window", "hop", "expected"),
    [
        (8, 4, 0, [[1, 2, 3, 4], [5, 6, 7, 8]]),
        (9, 4, 0, [[1, 2, 3, 4], [5, 6, 7, 8], [9, 0, 0, 0]]),
        (4, 4, 1, [[1, 2, 3, 4]]),
        (5, 4, 1, [[1, 2, 3, 4], [2, 3, 4, 5]]),
        (1, 1, 0, [[1]]),
        (1, 2, 5, [[1, 0]]),
        (10, 2, 5, [[1, 2], [6, 7], [0, 0]]),
        (5, 2, 5, [[1, 2], [0, 0]]),
        (5, 3, 2, [[1, 2, 3], [3, 4, 5]]),
        (6, 3, 2, [[1, 2, 3], [3, 4, 5], [5, 6, 0]]),
    ],
)
def test_t52_the_last_window_reaches_the_end(
    runtime: Runtime, frames: int, window: int, hop: int, expected: list[list[int]]
) -> None:
    samples = np.arange(1, frames + 1, dtype=np.float32)
    assert sound(runtime, samples, window_frames=window, hop_frames=hop).to_numpy().tolist() == expected


def test_t52_windows_of_any_lengths(runtime: Runtime) -> None:
    generator = np.random.default_rng(4)
    for frames, window, hop in generator.integers(1, 40, (200, 3)).tolist():
        samples = generator.integers(-32768, 32768, frames).astype(np.int16)
        count = max(1, 1 + math.ceil((frames - window) / hop))
        padded = [*samples.tolist(), *[0] * (window + hop * count)]
        expected = [[value / 32768 for value in padded[hop * k : hop * k + window]] for k in range(count)]
        assert sound(runtime, samples, window_frames=window, hop_frames=hop).to_numpy().tolist() == expected


def test_t52_windows_in_nct_and_float16(runtime: Runtime) -> None:
    tensor = sound(runtime, np.array([1, 2, 3], np.float32), window_frames=2, layout=NCT, data_type=T.FLOAT16)
    assert tensor.desc() == (T.FLOAT16, (2, 1, 2))
    assert tensor.to_numpy().tolist() == [[[1, 2]], [[3, 0]]]


def test_t52_two_channels_are_cut_after_their_mean(runtime: Runtime) -> None:
    tensor = sound(runtime, np.array([[1, 3], [2, 4], [3, 5]], np.float32), channels=1, window_frames=2, hop_frames=1)
    assert tensor.to_numpy().tolist() == [[2, 3], [3, 4]]


@pytest.mark.parametrize(
    ("samples", "options", "message"),
    [
        (np.zeros(4, np.float32), {"hop_frames": 2}, "hop_frames needs window_frames"),
        (np.zeros((4, 2), np.float32), {"window_frames": 2}, "one channel"),
        (np.zeros(4, np.float32), {"window_frames": 2, "channels": 2}, "one channel"),
        (np.zeros(4, np.float32), {"window_frames": -1}, "window_frames"),
        (np.zeros(4, np.float32), {"window_frames": True}, "window_frames"),
        (np.zeros(4, np.float32), {"window_frames": 2, "hop_frames": 1.5}, "hop_frames"),
        (np.zeros(4, np.float32), {"window_frames": 2**32}, "window_frames"),
    ],
)
def test_t52_windows_that_cannot_be(runtime: Runtime, samples: Array, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sound(runtime, samples, **options)


# Refusals


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"channels": 1},
        {"sample_format": "int16"},
        {"channels": 1, "sample_format": "int24"},
        {"channels": 1, "sample_format": "INT16"},
        {"channels": 1, "sample_format": 16},
        {"channels": 0, "sample_format": "int16"},
        {"channels": 65, "sample_format": "int16"},
        {"channels": True, "sample_format": "int16"},
        {"channels": 1.0, "sample_format": "int16"},
    ],
)
def test_t53_bytes_need_channels_and_a_format(runtime: Runtime, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"channels|sample_format"):
        runtime.tensor_from_audio(bytes(8), sample_rate=16000, **arguments)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros(4), "not float64"),
        (np.zeros(4, np.float16), "not float16"),
        (np.zeros(4, np.int8), "not int8"),
        (np.zeros(4, np.uint16), "not uint16"),
        (np.zeros(4, np.int64), "not int64"),
        (np.zeros(4, bool), "not bool"),
        (np.zeros((1, 2, 2), np.float32), r"not \(1, 2, 2\)"),
        (np.float32(1), r"not \(\)"),
        (np.zeros((4, 0), np.float32), "has 0 channels"),
        (np.zeros((4, 65), np.float32), "has 65 channels"),
        ([0.5, 0.25], "not float64"),
        ("sound", "not str"),
        (None, "not NoneType"),
        (np.ma.array(np.zeros(2, np.float32), mask=[True, False]), "sound has no mask"),
    ],
)
def test_t53_arrays_that_are_no_sound(runtime: Runtime, samples: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        runtime.tensor_from_audio(samples, sample_rate=16000)


def test_t53_channels_before_frames_are_to_be_transposed(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match=r"16000 channels.*; transpose samples of shape \(channels, frames\)"):
        runtime.tensor_from_audio(np.zeros((2, 16000), np.float32), sample_rate=16000)


def test_t53_a_path_is_no_sound_and_the_error_says_what_reads_it(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match=r"not str; read files with genai\.read_audio"):
        runtime.tensor_from_audio("speech.wav", sample_rate=16000)


@pytest.mark.parametrize("rate", [0, -1, 2**32, True, 16000.0, "16000", None])
def test_t53_rates_that_cannot_be(runtime: Runtime, rate: Any) -> None:
    tensor = runtime.create_tensor(T.FLOAT32, (1, 4))
    with pytest.raises(ValueError, match="sample_rate"):
        runtime.tensor_from_audio(np.zeros(4, np.float32), sample_rate=rate)
    with pytest.raises(ValueError, match="sample_rate"):
        runtime.audio_bytes_from_tensor(tensor, sample_rate=rate, channels=1)


def test_t53_the_channels_of_an_array_are_its_own(runtime: Runtime) -> None:
    assert runtime.tensor_from_audio(np.zeros((4, 2), np.int16), sample_rate=1, channels=2).desc()[1] == (1, 2, 4)
    with pytest.raises(ValueError, match="channels"):
        runtime.tensor_from_audio(np.zeros((4, 2), np.int16), sample_rate=1, channels=1)


def test_t53_a_format_is_ignored_for_an_array(runtime: Runtime) -> None:
    tensor = runtime.tensor_from_audio(np.full(1, 16384, np.int16), sample_rate=1, sample_format="uint8")
    assert tensor.to_numpy().tolist() == [[0.5]]


@pytest.mark.parametrize("data_type", [T.UNDEFINED, T.INT16, T.FLOAT64, T.BFLOAT16, 99])
def test_t53_element_types_that_sound_does_not_have(runtime: Runtime, data_type: Any) -> None:
    with failing(0x80070057):
        sound(runtime, np.zeros(4, np.float32), data_type=data_type)


@pytest.mark.parametrize("data", [b"", b"123", b"1"])
def test_t53_bytes_are_whole_frames(runtime: Runtime, data: bytes) -> None:
    with failing(0x80070057):
        runtime.tensor_from_audio(data, sample_rate=16000, channels=1, sample_format="int16")


@pytest.mark.parametrize("shape", [(0,), (0, 2)])
def test_t53_an_array_without_a_frame(runtime: Runtime, shape: tuple[int, ...]) -> None:
    with failing(0x80070057):
        runtime.tensor_from_audio(np.zeros(shape, np.float32), sample_rate=16000)


def test_t53_arguments_are_checked_before_the_number_of_bytes(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="hop_frames"):
        runtime.tensor_from_audio(
            b"123", sample_rate=1, channels=1, sample_format="int16", options=AudioTensorOptions(hop_frames=1)
        )


@pytest.mark.parametrize("count", [65, -1, True, 1.5])
def test_t53_numbers_of_channels_that_cannot_be(runtime: Runtime, count: Any) -> None:
    with pytest.raises(ValueError, match="channels"):
        sound(runtime, np.zeros(4, np.float32), channels=count)


def test_t53_foreign_options(runtime: Runtime) -> None:
    with pytest.raises(TypeError, match="AudioTensorOptions"):
        runtime.tensor_from_audio(np.zeros(4, np.float32), sample_rate=1, options={})  # type: ignore[arg-type]


@pytest.mark.parametrize("sample_format", ["uint8", "int24", "float64", None, 2])
def test_t53_formats_that_are_not_written(runtime: Runtime, sample_format: Any) -> None:
    with pytest.raises(ValueError, match="sample_format"):
        runtime.create_tensor(T.FLOAT32, (1, 4)).to_audio_bytes(sample_rate=1, channels=1, sample_format=sample_format)


@pytest.mark.parametrize(
    ("shape", "channels", "message"),
    [
        ((3, 4), 1, "a row of windows"),
        ((2, 1, 4), 1, "a row of windows"),
        ((4,), 1, r"not \(4,\)"),
        ((1, 1, 1, 4), 1, r"not \(1, 1, 1, 4\)"),
        ((), 1, r"not \(\)"),
        ((1, 4), 2, "channels is 2, the tensor has 1"),
        ((1, 2, 4), 1, "channels is 1, the tensor has 2"),
    ],
)
def test_t53_shapes_that_are_no_sound(runtime: Runtime, shape: tuple[int, ...], channels: int, message: str) -> None:
    tensor = runtime.create_tensor(T.FLOAT32, shape)
    with pytest.raises(ValueError, match=message):
        runtime.audio_bytes_from_tensor(tensor, sample_rate=1, channels=channels)


@pytest.mark.parametrize("data_type", [T.INT16, T.FLOAT64, T.BFLOAT16])
def test_t53_element_types_that_are_not_written(runtime: Runtime, data_type: TensorDataType) -> None:
    tensor = runtime.create_tensor(data_type, (1, 4))
    with failing(0x80070057):
        runtime.audio_bytes_from_tensor(tensor, sample_rate=1, channels=1)


def test_t53_a_tensor_that_is_being_written(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.FLOAT32, (1, 4))
    with tensor.lock(TensorLockMode.WRITE), failing(0x800700D4):
        tensor.to_audio_bytes(sample_rate=1, channels=1)


def test_t53_closed_objects(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.FLOAT32, (1, 4))
    tensor.close()
    with pytest.raises(RuntimeError, match="Tensor is closed"):
        tensor.to_audio_bytes(sample_rate=1, channels=1)
    runtime.close()
    with pytest.raises(RuntimeError, match="Runtime is closed"):
        runtime.tensor_from_audio(np.zeros(4, np.float32), sample_rate=1)
    with pytest.raises(RuntimeError, match="Runtime is closed"):
        runtime.audio_bytes_from_tensor(tensor, sample_rate=1, channels=1)


@pytest.mark.parametrize(
    ("field", "value"),
    [("data_type", True), ("data_type", 1.0), ("layout", 17.0), ("layout", False), ("layout", TensorLockMode.READ)],
)
def test_what_equals_a_number_and_means_no_member(runtime: Runtime, field: str, value: object) -> None:
    given: dict[str, Any] = {field: value}
    with pytest.raises((ValueError, WinMLError)):
        runtime.tensor_from_audio(np.zeros(4, np.float32), sample_rate=8000, options=AudioTensorOptions(**given))
