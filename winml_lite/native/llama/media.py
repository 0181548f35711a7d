"""Encoders from projector files, through libmtmd (runtime §11): an image or sound in, embedding rows out.

libmtmd scales and cuts the media as the projector wants it, puts framing tokens around it and runs the encoder. What
it splits into several pieces (tiles of an image, seconds of sound) becomes one segment of several parts. Feeding the
rows is not here (`segments.py`).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from ...errors import CANCELLED, E_FAIL, E_INVALIDARG, NOT_ENOUGH_MEMORY, NOT_SUPPORTED, WinMLError
from ...handles import Resource
from ...storage import Storage
from ...values import FREE_DIMENSION, Descriptor, TensorDataType
from ..activity import Activity, apart, free_last
from ..segments import SegmentPart, SegmentPlan
from .api import MediaApi
from .context import ContextSettings
from .library import ENGINE, log, media_library
from .model import LlamaModel
from .projector_file import check_projector

_OPEN = "IWinMLStage.CreateMediaEncoderFromFile"
_ENCODE = "IWinMLMediaEncoder.Encode"
_FLOATS = ctypes.POINTER(ctypes.c_float)
_BYTES = ctypes.POINTER(ctypes.c_uint8)
IMAGE: Descriptor = (TensorDataType.UINT8, (1, FREE_DIMENSION, FREE_DIMENSION, 3))
"""Height, width, and red, green and blue."""
SOUND: Descriptor = (TensorDataType.FLOAT32, (1, FREE_DIMENSION))
"""Samples of one channel, -1 to 1, at the rate that the projector was made for."""


def open_projector(path: str, model: LlamaModel, settings: ContextSettings) -> LlamaProjector:
    """Load a projector file for a model.

    0x80070570 for a file that is none, 0x80070032 for one that does not fit the model, 0x800704C7 when interrupted.
    """
    check_projector(path)
    api = media_library()
    stop = Event()
    pointer = apart(lambda: _load(api, path, model, settings, stop), stop.set)
    return LlamaProjector(api, pointer, model, path)


def _load(api: MediaApi, path: str, model: LlamaModel, settings: ContextSettings, stop: Event) -> int:
    model.check()
    params = api.mtmd_context_params_default()
    params.use_gpu = settings.offload
    params.n_threads = settings.batch_threads
    params.print_timings = False
    progress = params.progress_callback = api.mtmd_progress_callback(lambda done, data: not stop.is_set())
    with log.captured_errors() as errors, Activity(ENGINE, stop.set):
        pointer = api.mtmd_init_from_file(os.fsencode(path), model.pointer, params)
    del progress  # it lives as long as the native call
    if pointer:
        return pointer
    if stop.is_set():
        raise WinMLError(CANCELLED, _OPEN, "loading was interrupted")
    raise WinMLError(NOT_SUPPORTED, _OPEN, f"the projector {path} does not fit {model.path}: {_reason(errors)}")


class LlamaProjector:
    """Implements `MediaProjector`."""

    def __init__(self, api: MediaApi, pointer: int, model: LlamaModel, path: str) -> None:
        self._resource = Resource(pointer, partial(free_last, api.mtmd_free), model.resource)
        self._exit = Event()
        self._activity = Activity(ENGINE, self._exit.set)
        self._api = api
        self._pointer = pointer
        self._model = model
        self._path = path
        self._row_length = model.row_length
        senses = {IMAGE: api.mtmd_support_vision(pointer), SOUND: api.mtmd_support_audio(pointer)}
        self.media: tuple[Descriptor, ...] = tuple(sense for sense, is_there in senses.items() if is_there)
        self.sample_rate = api.mtmd_get_audio_sample_rate(pointer) if senses[SOUND] else None
        if not self.media:
            self._refuse("it encodes neither images nor sound")
        if api.mtmd_decode_use_mrope(pointer) != model.has_row_axes:
            self._refuse("it and the model place rows differently")

    def encode(self, media: Storage, should_stop: Callable[[], bool]) -> tuple[Storage, SegmentPlan]:
        """Return the rows of an image or of sound, and how the decoder takes them."""
        if _is_sound(media) and media.shape[1] < 2:  # the engine would end the process
            raise WinMLError(E_INVALIDARG, _ENCODE, "a single sample is no sound")
        stop = Event()

        def check() -> None:
            if stop.is_set() or self._exit.is_set() or should_stop():
                raise WinMLError(CANCELLED, _ENCODE, f"{self._path}: encoding was stopped")

        pieces = apart(lambda: self._pieces(media, check), stop.set, may_leave=False)
        rows = np.concatenate([rows for _, rows in pieces])
        storage = Storage(rows.reshape(-1).view(np.uint8), TensorDataType.FLOAT32, rows.shape)
        return storage, SegmentPlan(tuple(part for part, _ in pieces))

    def _pieces(self, media: Storage, check: Callable[[], None]) -> list[tuple[SegmentPart, npt.NDArray[np.float32]]]:
        """Encode the media piece by piece; `check`, called before each, may raise."""
        check()
        pieces = []
        with self._chunks(media) as chunks, self._activity:
            for chunk in chunks:
                check()
                pieces.append(self._piece(chunk))
        return pieces

    @contextmanager
    def _chunks(self, media: Storage) -> Iterator[list[int]]:
        """Cut the media into pieces that are valid inside the block."""
        api = self._api
        with _owned(api.mtmd_input_chunks_init(), api.mtmd_input_chunks_free) as chunks:
            with _owned(self._bitmap(media), api.mtmd_bitmap_free) as bitmap, log.captured_errors() as errors:
                marker = api.mtmd_default_marker()
                text = api.mtmd_input_text(marker, len(marker), False, True)
                bitmaps = (ctypes.c_void_p * 1)(bitmap)
                arguments = self._pointer, chunks, ctypes.byref(text), bitmaps, 1
                status = self._model.call(api.mtmd_tokenize, *arguments)
            if status:
                self._fail("the media was refused", errors)
            yield [api.mtmd_input_chunks_get(chunks, index) for index in range(api.mtmd_input_chunks_size(chunks))]

    def _bitmap(self, media: Storage) -> int | None:
        """Copy the media to a native object."""
        media.fetch()
        data = media.data.ctypes
        if _is_sound(media):
            return self._api.mtmd_bitmap_init_from_audio(media.shape[1], data.data_as(_FLOATS))
        _, height, width, _ = media.shape
        return self._api.mtmd_bitmap_init(width, height, data.data_as(_BYTES))

    def _piece(self, chunk: int) -> tuple[SegmentPart, npt.NDArray[np.float32]]:
        """Return one piece and its rows, float32 (row count, row length); framing tokens have none."""
        api = self._api
        position_count = api.mtmd_input_chunk_get_n_pos(chunk)
        if api.mtmd_input_chunk_get_type(chunk) == api.MTMD_INPUT_CHUNK_TYPE_TEXT:
            size = ctypes.c_size_t()
            tokens = api.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(size))
            part = SegmentPart(tokens=tuple(tokens[: size.value]), position_count=position_count)
            return part, np.empty((0, self._row_length), np.float32)
        with log.captured_errors() as errors:
            status = api.mtmd_encode_chunk(self._pointer, chunk)
        if status:
            self._fail("the encoder failed", errors)
        count = api.mtmd_input_chunk_get_n_tokens(chunk)
        rows = np.ctypeslib.as_array(api.mtmd_get_output_embd(self._pointer), (count, self._row_length)).copy()
        part = SegmentPart(
            row_count=count,
            position_count=position_count,
            offsets=self._offsets(chunk, count),
            is_causal=not api.mtmd_decode_use_non_causal(self._pointer, chunk),
        )
        return part, rows

    def _offsets(self, chunk: int, count: int) -> npt.NDArray[np.int32] | None:
        """Return where the rows of an image lie in time, height and width, int32 (3, count); None: one by one."""
        api = self._api
        is_image = api.mtmd_input_chunk_get_type(chunk) == api.MTMD_INPUT_CHUNK_TYPE_IMAGE
        if not is_image or not self._model.has_row_axes:
            return None
        tokens = api.mtmd_input_chunk_get_tokens_image(chunk)
        at_0, at_1 = (
            [api.mtmd_image_tokens_get_decoder_pos(tokens, start, index) for index in range(count)] for start in (0, 1)
        )
        for a, b in zip(at_0, at_1, strict=True):
            if (b.t - a.t, b.y - a.y, b.x - a.x, a.z, b.z) != (1, 1, 1, 0, 0):
                self._refuse("its rows have places that do not follow the sequence")
        return np.array([[place.t, place.y, place.x] for place in at_0], np.int32).T

    def _refuse(self, problem: str) -> NoReturn:
        raise WinMLError(NOT_SUPPORTED, _OPEN, f"the projector {self._path} does not fit {self._model.path}: {problem}")

    def _fail(self, what: str, errors: list[str]) -> NoReturn:
        raise WinMLError(E_FAIL, _ENCODE, f"{self._path}: {what}: {_reason(errors)}")


def _is_sound(media: Storage) -> bool:
    return media.data_type is TensorDataType.FLOAT32


def _reason(errors: list[str]) -> str:
    return "; ".join(line.strip() for line in errors) or "the engine gives no reason"


@contextmanager
def _owned(pointer: int | None, free: Callable[[int], object]) -> Iterator[int]:
    """Free a native object at the end of the block."""
    if not pointer:
        raise WinMLError(NOT_ENOUGH_MEMORY, _ENCODE, "libmtmd made no object")
    try:
        yield pointer
    finally:
        free(pointer)
