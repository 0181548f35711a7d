"""NV12 frames to tensors and back, by the formulas of tensors §12, and the Media Foundation calls that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fakes.reference_images import bilinear
from fakes.rig import failing
from winml_lite import (
    ImageTensorOptions,
    NotSupportedError,
    Runtime,
    TensorAccessMode,
    TensorChannelOrder,
    TensorDataType,
    TensorLayout,
    TensorNormalization,
    TensorQuantization,
    TensorQuantizationMode,
    VideoFrameMetadata,
)

T = TensorDataType
INVALID, NOT_SUPPORTED = 0x80070057, 0x80070032
SMALL = VideoFrameMetadata(2, 2)


def frame_of(*values: int) -> bytes:
    """A frame of 2 x 2: four of luma, then U and V."""
    return bytes(values)


def colours_of(luma: int, u: int, v: int) -> list[float]:
    """Red, green and blue, by the letter."""
    y, p, q = (luma - 16) * 255 / 219, (u - 128) * 255 / 224, (v - 128) * 255 / 224
    rgb = [y + 1.5748 * q, y - 0.187324 * p - 0.468124 * q, y + 1.8556 * p]
    return [min(max(value, 0.0), 255.0) for value in rgb]


def noise(width: int, height: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """A frame without gaps."""
    return np.random.default_rng(seed).integers(0, 256, (height // 2 * 3, width), np.uint8)


def decoded(frame: npt.NDArray[np.uint8], width: int, height: int) -> npt.NDArray[Any]:
    """The colours (3, height, width), one pixel at a time."""
    result = np.empty((3, height, width))
    for y in range(height):
        for x in range(width):
            u, v = frame[height + y // 2, x // 2 * 2], frame[height + y // 2, x // 2 * 2 + 1]
            result[:, y, x] = colours_of(int(frame[y, x]), int(u), int(v))
    return result


def test_black_white_and_gray(runtime: Runtime) -> None:
    tensor = runtime.tensor_from_nv12(frame_of(16, 235, 16, 235, 128, 128), metadata=SMALL)
    assert tensor.desc() == (T.FLOAT32, (1, 3, 2, 2))
    assert tensor.to_numpy()[0, 1].tolist() == [[0, 255], [0, 255]]


def test_colours_are_not_rounded(runtime: Runtime) -> None:
    found = runtime.tensor_from_nv12(frame_of(100, 100, 100, 100, 90, 200), metadata=SMALL).to_numpy()[0, :, 0, 0]
    # (100 - 16) * 255 / 219 = 97.8082; U -38 * 255 / 224 = -43.2589; V 72 * 255 / 224 = 81.9643
    assert found == pytest.approx([226.8856, 67.5426, 17.5369], abs=1e-3)


@pytest.mark.parametrize(("width", "height"), [(2, 2), (6, 4), (16, 10)])
def test_frames_of_noise(runtime: Runtime, width: int, height: int) -> None:
    frame = noise(width, height)
    found = runtime.tensor_from_nv12(frame.tobytes(), metadata=VideoFrameMetadata(width, height)).to_numpy()[0]
    np.testing.assert_allclose(found, decoded(frame, width, height), atol=1e-3)


@pytest.mark.parametrize("size", [(3, 5), (12, 8), (31, 2)])
def test_frames_are_resampled_after_decoding(runtime: Runtime, size: tuple[int, int]) -> None:
    width, height = 12, 8
    frame = noise(width, height, 1)
    planes = decoded(frame, width, height).tolist()
    expected = [
        [
            [
                bilinear(plane, (i + 0.5) * width / size[0] - 0.5, (j + 0.5) * height / size[1] - 0.5)
                for i in range(size[0])
            ]
            for j in range(size[1])
        ]
        for plane in planes
    ]
    options = ImageTensorOptions(size=size)
    tensor = runtime.tensor_from_nv12(frame.tobytes(), metadata=VideoFrameMetadata(width, height), options=options)
    np.testing.assert_allclose(tensor.to_numpy()[0], expected, atol=1e-3)


def test_gray_is_the_luma_of_the_colours(runtime: Runtime) -> None:
    options = ImageTensorOptions(channel_order=TensorChannelOrder.GRAY)
    found = runtime.tensor_from_nv12(frame_of(100, 100, 100, 100, 90, 200), metadata=SMALL, options=options)
    # 0.299 * 226.8856 + 0.587 * 67.5426 + 0.114 * 17.5369
    assert found.to_numpy()[0, 0, 0, 0] == pytest.approx(109.4855, abs=1e-3)


def test_alpha_is_255(runtime: Runtime) -> None:
    options = ImageTensorOptions(channel_order=TensorChannelOrder.BGRA)
    found = runtime.tensor_from_nv12(frame_of(16, 16, 16, 16, 128, 128), metadata=SMALL, options=options)
    assert found.to_numpy()[0, 3].tolist() == [[255, 255], [255, 255]]


def test_the_same_size_as_bytes_is_decoded_all_the_same(runtime: Runtime) -> None:
    options = ImageTensorOptions(data_type=T.UINT8)
    found = runtime.tensor_from_nv12(frame_of(235, 235, 235, 235, 128, 128), metadata=SMALL, options=options)
    assert found.to_numpy().ravel().tolist() == [255] * 12


def test_bytes_between_the_rows_are_skipped(runtime: Runtime) -> None:
    frame = noise(6, 4)
    gaps = np.full((6, 9), 99, np.uint8)
    gaps[:, :6] = frame
    wide = runtime.tensor_from_nv12(gaps.tobytes(), metadata=VideoFrameMetadata(6, 4, 9)).to_numpy()
    assert (
        wide.tolist()
        == runtime.tensor_from_nv12(frame.tobytes(), metadata=VideoFrameMetadata(6, 4)).to_numpy().tolist()
    )


def test_a_frame_into_a_tensor_that_is_there(runtime: Runtime) -> None:
    options = ImageTensorOptions(size=(5, 3))
    destination = runtime.create_tensor(T.FLOAT32, (1, 3, 3, 5))
    metadata = VideoFrameMetadata(6, 4)
    runtime.write_tensor_from_nv12(destination, noise(6, 4).tobytes(), metadata=metadata, options=options)
    expected = runtime.tensor_from_nv12(noise(6, 4).tobytes(), metadata=metadata, options=options)
    assert destination.to_numpy().tolist() == expected.to_numpy().tolist()
    with failing(INVALID):
        runtime.write_tensor_from_nv12(destination, noise(6, 4).tobytes(), metadata=metadata)


def test_a_frame_that_lies_in_the_tensor_is_read_before_it_is_overwritten(runtime: Runtime) -> None:
    memory = np.zeros(3 * 600 * 600, np.uint8)
    frame = memory[: 600 * 600 * 3 // 2].reshape(900, 600)
    frame[:600], frame[600:] = 100, 128  # gray: 100 of 16 to 235 is 98 of 0 to 255
    view = runtime.tensor_from_buffer(memory, T.UINT8, (1, 600, 600, 3), access=TensorAccessMode.READWRITE)
    options = ImageTensorOptions(data_type=T.UINT8, layout=TensorLayout.NHWC)
    runtime.write_tensor_from_nv12(view, memory.data, metadata=VideoFrameMetadata(600, 600), options=options)
    assert set(memory.tolist()) == {98}


@pytest.mark.parametrize("metadata", [VideoFrameMetadata(3, 2), VideoFrameMetadata(2, 3), VideoFrameMetadata(4, 2, 3)])
def test_odd_sizes_and_short_strides(runtime: Runtime, metadata: VideoFrameMetadata) -> None:
    with failing(INVALID):
        runtime.tensor_from_nv12(bytes(64), metadata=metadata)


@pytest.mark.parametrize("metadata", [VideoFrameMetadata(), VideoFrameMetadata(2, 0), VideoFrameMetadata(4, 2)])
def test_sizes_that_are_missing_or_too_large(runtime: Runtime, metadata: VideoFrameMetadata) -> None:
    with pytest.raises(ValueError, match=r"source_width|buffer"):
        runtime.tensor_from_nv12(bytes(6), metadata=metadata)


# Back to frames


def encoded(colours: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """A frame of colours (3, height, width), by the letter."""
    red, green, blue = colours
    luma = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    height, width = luma.shape

    def mean(plane: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        total: npt.NDArray[np.float64] = plane[::2, ::2] + plane[1::2, ::2] + plane[::2, 1::2] + plane[1::2, 1::2]
        return total / 4

    frame = np.empty((height // 2 * 3, width), np.uint8)
    frame[:height] = np.clip(np.rint(16 + 219 * luma / 255), 16, 235)
    frame[height:, ::2] = np.clip(np.rint(128 + 224 * mean((blue - luma) / (1.8556 * 255))), 16, 240)
    frame[height:, 1::2] = np.clip(np.rint(128 + 224 * mean((red - luma) / (1.5748 * 255))), 16, 240)
    return frame


@pytest.mark.parametrize("layout", [TensorLayout.NCHW, TensorLayout.NHWC])
@pytest.mark.parametrize("order", [TensorChannelOrder.RGB, TensorChannelOrder.BGRA])
def test_tensors_become_frames(runtime: Runtime, layout: TensorLayout, order: TensorChannelOrder) -> None:
    pixels = np.random.default_rng(2).integers(0, 256, (8, 10, 3), np.uint8)
    options = ImageTensorOptions(layout=layout, channel_order=order, normalization=TensorNormalization.unit())
    tensor = runtime.tensor_from_image(pixels, options=options)
    found = np.frombuffer(runtime.nv12_bytes_from_tensor(tensor, options=options), np.uint8).reshape(12, 10)
    expected = encoded(pixels.transpose(2, 0, 1).astype(float))
    assert np.abs(found.astype(int) - expected).max() <= 1
    assert (found == expected).mean() > 0.98


def test_gray_tensors_have_no_chroma(runtime: Runtime) -> None:
    options = ImageTensorOptions(channel_order=TensorChannelOrder.GRAY)
    tensor = runtime.tensor_from_image(np.array([[0, 255], [0, 255]], np.uint8), options=options)
    assert runtime.nv12_bytes_from_tensor(tensor, options=options) == bytes([16, 235, 16, 235, 128, 128])


def test_one_colour_survives(runtime: Runtime) -> None:
    pixels = np.full((4, 4, 3), (200, 30, 90), np.uint8)
    frame = runtime.nv12_bytes_from_tensor(runtime.tensor_from_image(pixels))
    found = runtime.tensor_from_nv12(frame, metadata=VideoFrameMetadata(4, 4)).to_numpy()[0, :, 0, 0]
    assert found == pytest.approx([200, 30, 90], abs=1.5)


def test_values_out_of_range_are_limited(runtime: Runtime) -> None:
    values = np.full((1, 3, 2, 2), np.nan, np.float32)
    values[0, :, 0] = 1e9
    frame = runtime.nv12_bytes_from_tensor(runtime.tensor_from_numpy(values))
    assert frame == bytes([235, 235, 16, 16, 128, 128])


def test_large_frames_are_made_in_blocks(runtime: Runtime) -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (302, 500, 3), np.uint8)
    frame = runtime.nv12_bytes_from_tensor(runtime.tensor_from_image(pixels))
    found = np.frombuffer(frame, np.uint8).reshape(453, 500).astype(int)
    assert np.abs(found - encoded(pixels.transpose(2, 0, 1).astype(float))).max() <= 1


@pytest.mark.parametrize("shape", [(1, 3, 3, 2), (1, 3, 2, 3), (2, 3, 2, 2), (1, 4, 2, 2)])
def test_tensors_that_are_no_frames(runtime: Runtime, shape: tuple[int, ...]) -> None:
    with failing(INVALID):
        runtime.nv12_bytes_from_tensor(runtime.create_tensor(T.FLOAT32, shape))


def test_a_frame_needs_four_dimensions(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="four dimensions"):
        runtime.nv12_bytes_from_tensor(runtime.create_tensor(T.FLOAT32, (3, 2, 2)))


# Metadata


@pytest.mark.parametrize(
    "metadata",
    [
        VideoFrameMetadata(-1, 2),
        VideoFrameMetadata(2, True),
        VideoFrameMetadata(2, 2, 2**32),
        VideoFrameMetadata(2, 2, timestamp_100ns=1.5),  # type: ignore[arg-type]
        VideoFrameMetadata(2, 2, duration_100ns=2**63),
        VideoFrameMetadata(2, 2, timestamp_100ns=-(2**63)),
    ],
)
def test_metadata_has_integers(runtime: Runtime, metadata: VideoFrameMetadata) -> None:
    with pytest.raises(ValueError, match="must be"):
        runtime.tensor_from_nv12(bytes(6), metadata=metadata)


def test_times_are_taken(runtime: Runtime) -> None:
    metadata = VideoFrameMetadata(2, 2, timestamp_100ns=-5, duration_100ns=0)
    assert runtime.tensor_from_nv12(bytes(6), metadata=metadata).desc()[1] == (1, 3, 2, 2)


def test_metadata_of_another_class(runtime: Runtime) -> None:
    with pytest.raises(TypeError, match="VideoFrameMetadata"):
        runtime.tensor_from_nv12(bytes(6), metadata=(2, 2))  # type: ignore[arg-type]


# Media Foundation


BAD = ImageTensorOptions(quantization=TensorQuantization(TensorQuantizationMode.RAW))


def test_samples_are_refused_with_the_mend(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.FLOAT32, (1, 3, 2, 2))
    with failing(NOT_SUPPORTED, NotSupportedError) as caught:
        runtime.tensor_from_mf_sample(object())
    assert "tensor_from_nv12" in str(caught.value)
    with failing(NOT_SUPPORTED, NotSupportedError) as caught:
        runtime.write_tensor_from_mf_sample(tensor, object(), metadata=SMALL)
    assert "write_tensor_from_nv12" in str(caught.value)
    with failing(NOT_SUPPORTED, NotSupportedError) as caught:
        runtime.mf_sample_from_tensor(tensor, media_type=object())
    assert "nv12_bytes_from_tensor" in str(caught.value)


def test_options_of_samples_are_checked_first(runtime: Runtime) -> None:
    tensor = runtime.create_tensor(T.FLOAT32, (1, 3, 2, 2))
    with pytest.raises(ValueError, match="needs a scale"):
        runtime.tensor_from_mf_sample(object(), options=BAD)
    with pytest.raises(ValueError, match="needs a scale"):
        runtime.write_tensor_from_mf_sample(tensor, object(), options=BAD)
    with pytest.raises(ValueError, match="needs a scale"):
        runtime.mf_sample_from_tensor(tensor, options=BAD)


def test_a_sample_of_a_tensor_has_a_size(runtime: Runtime) -> None:
    flat = runtime.create_tensor(T.FLOAT32, (12,))
    with pytest.raises(ValueError, match="four dimensions"):
        runtime.mf_sample_from_tensor(flat)
    with failing(NOT_SUPPORTED, NotSupportedError):
        runtime.mf_sample_from_tensor(flat, metadata=SMALL)
    with failing(NOT_SUPPORTED, NotSupportedError):
        runtime.mf_sample_from_tensor(flat, options=ImageTensorOptions(size=(2, 2)))


def test_no_sample_is_an_error_of_its_own(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="IMFSample"):
        runtime.tensor_from_mf_sample(None)
