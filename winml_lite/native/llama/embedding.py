"""A built llama.cpp stage that computes embeddings: texts in, one row for each text or each token out.

Input 0 holds the token ids of all texts, one text after the other, input 1 how many belong to each. Texts share a batch
as long as they fit; each of them is seen as a whole, and nothing is kept between runs. Not here: normalising the rows,
and texts (`genai/embedding.py`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ... import errors
from ...errors import WinMLError
from ...handles import Resource
from ...storage import Storage, check_descriptor, descriptor_text
from ...values import FREE_DIMENSION, Descriptor, ExecutionTargetKind, TensorDataType
from ..activity import SOME_THREAD, Activity, apart, free_last
from ..backend import Sequence, Speculation
from ..saved_state import SavedState
from ..segments import Segments
from ..stopping import StopRequest
from .api import LlamaApi, retyped
from .context import AbortFlag, decode_error
from .library import ENGINE, log
from .model import LlamaModel

_BUILD = "IWinMLPipelineBuilder.Build"
_RUN = "IWinMLPipeline.Run"
_FIRST_SIZE = 512
"""Tokens of one batch, until a text is longer."""
_MAX_TEXTS = 32
"""Most texts of one batch."""
_ID_TYPES = (TensorDataType.INT32, TensorDataType.INT64)
_POOLINGS = {
    None: "LLAMA_POOLING_TYPE_UNSPECIFIED",
    "none": "LLAMA_POOLING_TYPE_NONE",
    "mean": "LLAMA_POOLING_TYPE_MEAN",
    "cls": "LLAMA_POOLING_TYPE_CLS",
    "last": "LLAMA_POOLING_TYPE_LAST",
}
Ids = npt.NDArray[np.int32]
Rows = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EmbeddingSettings:
    """What the contexts of an embedding stage are made with."""

    limit: int
    """Most tokens of one text."""
    pooling: str | None
    """A key of `_POOLINGS`; None = as the file says."""
    threads: int
    key_type: int
    """ggml type of the keys in memory; F32 for both makes attention exact."""
    value_type: int
    offload: bool
    adapters: tuple[tuple[int, float], ...] = ()


class EmbeddingContext:
    """A native context for batches of `size` tokens. Frees itself when nothing refers to it."""

    def __init__(self, model: LlamaModel, size: int, settings: EmbeddingSettings, abort: AbortFlag) -> None:
        api = model.library.api
        self.size = size
        self.max_texts = 1 if model.keeps_recurrent_state else _MAX_TEXTS  # such states are split between batches
        self._model = model
        self._abort = abort
        model.check()
        ENGINE.is_used = True
        self._activity = Activity(ENGINE, abort.set)
        with log.captured_errors() as lines, self._activity:
            pointer = api.llama_init_from_model(model.pointer, self._params(api, settings))
        if not pointer:
            text = lines[0] if lines else f"no context of {size} tokens could be made"
            raise WinMLError(errors.NOT_ENOUGH_MEMORY, _BUILD, f"{model.path}: {text}")
        self._resource = Resource(pointer, partial(free_last, api.llama_free), model.resource, abort)
        self._pointer = pointer
        self._memory = api.llama_get_memory(pointer)
        """0 for an encoder, which keeps nothing."""
        pooling = api.llama_pooling_type(pointer)
        if pooling == api.LLAMA_POOLING_TYPE_RANK:
            raise WinMLError(errors.NOT_SUPPORTED, _BUILD, f"{model.path} ranks texts, it has no embeddings of them")
        self.gives_tokens = pooling == api.LLAMA_POOLING_TYPE_NONE
        self.width = api.llama_model_n_embd_out(model.pointer)
        number = ctypes.c_int32
        self._of_text = retyped(api.llama_get_embeddings_seq, ctypes.c_void_p, ctypes.c_void_p, number)
        self._of_token = retyped(api.llama_get_embeddings_ith, ctypes.c_void_p, ctypes.c_void_p, number)
        model.adapt(pointer, settings.adapters)

    def _params(self, api: LlamaApi, settings: EmbeddingSettings) -> Any:
        params = api.llama_context_default_params()
        # As many tokens for each text: where they differ the engine ends the process in preparing the mean.
        size = -(-self.size // self.max_texts) * self.max_texts
        params.n_ctx = params.n_batch = params.n_ubatch = params.n_outputs_max = size
        params.n_seq_max = self.max_texts
        params.kv_unified = True  # else each text would get its share of the room
        params.embeddings = True
        params.pooling_type = getattr(api, _POOLINGS[settings.pooling])
        params.n_threads = params.n_threads_batch = settings.threads
        params.type_k, params.type_v = settings.key_type, settings.value_type
        if settings.key_type == settings.value_type == api.GGML_TYPE_F32:
            params.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_DISABLED  # the fused kernel works in half precision
        params.offload_kqv = params.op_offload = settings.offload
        params.no_perf = True
        self._abort.install(api, params)
        return params

    def evaluate(self, texts: list[Ids], into: Rows) -> None:
        """Compute the rows of texts that fit into one batch together."""
        tokens = np.concatenate(texts)
        numbers = np.repeat(np.arange(len(texts), dtype=np.int32), [text.size for text in texts])
        positions = np.concatenate([np.arange(text.size, dtype=np.int32) for text in texts])
        status = self._decode(tokens, numbers, positions)
        if status:
            self.fail(status)
        find, count = (self._of_token, tokens.size) if self.gives_tokens else (self._of_text, len(texts))
        for index in range(count):
            with self._activity:
                address = find(self._pointer, index)
            if not address:
                raise WinMLError(errors.E_UNEXPECTED, _RUN, f"{self._model.path}: the engine returned no embedding")
            ctypes.memmove(into[index].ctypes.data, address, self.width * into.itemsize)

    def fail(self, status: int) -> NoReturn:
        """Raise for a status of `llama_decode` that is not 0."""
        if self._activity.barred:
            self._activity.refuse()  # a daemon thread: it ends here, with the process
        raise decode_error(status, _RUN, self._model.path)

    def _decode(self, tokens: Ids, numbers: Ids, positions: Ids) -> int:
        """Run `llama_decode` on whole texts and return its status."""
        api, activity = self._model.library.api, self._activity
        each = numbers.ctypes.data + numbers.itemsize * np.arange(tokens.size, dtype=np.uintp)
        ones, marks = np.ones(tokens.size, np.int32), np.ones(tokens.size, np.int8)
        batch = api.llama_batch()
        batch.n_tokens = tokens.size
        for name, array in (
            ("token", tokens), ("pos", positions), ("n_seq_id", ones), ("seq_id", each), ("logits", marks)
        ):  # fmt: skip
            setattr(batch, name, ctypes.cast(array.ctypes.data, dict(batch._fields_)[name]))
        try:
            activity.running = SOME_THREAD
            if activity.barred:
                activity.refuse()
            if self._memory:
                api.llama_memory_clear(self._memory, False)
            return api.llama_decode(self._pointer, batch)
        finally:
            activity.running = 0


class EmbeddingExecutor:
    """Implements `StageExecutor`: inputs ids (1, n) and lengths (k,), output float32 (k, width), or (n, width) where
    nothing is pooled.
    """

    sequence: Sequence | None = None
    segments: Segments | None = None
    speculation: Speculation | None = None
    saved_state: SavedState | None = None

    def __init__(self, model: LlamaModel, settings: EmbeddingSettings, target_kind: ExecutionTargetKind) -> None:
        self._model = model
        self._settings = settings
        self._abort = AbortFlag()
        self._context = EmbeddingContext(model, min(_FIRST_SIZE, settings.limit), settings, self._abort)
        integers = TensorDataType.INT32
        self.inputs: tuple[Descriptor, ...] = ((integers, (1, FREE_DIMENSION)), (integers, (FREE_DIMENSION,)))
        self.outputs: tuple[Descriptor, ...] = ((TensorDataType.FLOAT32, (FREE_DIMENSION, self._context.width)),)
        self.target_kind = target_kind
        self._bound: list[Storage | None] = [None, None]
        self._target: Storage | None = None
        self._result: Storage | None = None

    def bind_input(self, index: int, storage: Storage | None) -> None:
        """Bind ids or lengths: INT32 or INT64, (n,) or (1, n)."""
        if index >= len(self.inputs):
            _no_port("input", index)
        if storage is not None:
            shape = storage.shape
            if storage.data_type not in _ID_TYPES or len(shape) not in (1, 2) or (len(shape) == 2 and shape[0] != 1):
                given = descriptor_text(storage.descriptor)
                text = f"input {index} is INT32 or INT64 of shape (n,) or (1, n), not {given}"
                raise WinMLError(errors.E_INVALIDARG, "IWinMLStage.BindInput", text)
        self._bound[index] = storage

    def bind_output(self, index: int, storage: Storage | None, wanted: bool) -> None:
        """Send the rows into `storage`, or into fresh memory."""
        if index != 0:
            _no_port("output", index)
        if storage is not None:
            check_descriptor(storage, self.outputs[0], "IWinMLStage.BindOutput")
            if not storage.writable:
                raise WinMLError(errors.E_INVALIDARG, "IWinMLStage.BindOutput", "the tensor is a read-only view")
        self._target = storage

    def run(self) -> None:
        """Compute the rows of all texts."""
        self._abort.clear()
        self._result = None
        texts = self._texts()
        context = self._fitting_context(max(text.size for text in texts))
        heights = [text.size if context.gives_tokens else 1 for text in texts]
        rows = self._room((sum(heights), context.width))
        places = list(accumulate(heights, initial=0))
        for start, stop in _batches([text.size for text in texts], context.size, context.max_texts):
            context.evaluate(texts[start:stop], rows[places[start] : places[stop]])
            if self._abort.is_set and stop < len(texts):  # not every device looks at the callback
                context.fail(2)
        self._result = self._target or Storage(rows.reshape(-1).view(np.uint8), TensorDataType.FLOAT32, rows.shape)

    def _texts(self) -> list[Ids]:
        """The bound texts, checked."""
        ids, lengths = (None if each is None else each.array().reshape(-1) for each in self._bound)
        if ids is None or lengths is None:
            raise WinMLError(errors.E_INVALIDARG, _RUN, "input 0, the ids, or input 1, the lengths, is not bound")
        limit, size = self._settings.limit, self._model.vocabulary_size
        if not lengths.size or lengths.min() < 1 or lengths.sum() != ids.size:
            text = (
                f"lengths are 1 or more each and {ids.size} together, as many as there are ids, not {lengths.tolist()}"
            )
            raise WinMLError(errors.E_INVALIDARG, _RUN, text)
        if lengths.max() > limit:
            text = f"text {int(lengths.argmax())} has {lengths.max()} tokens, {self._model.path} takes {limit}"
            raise WinMLError(errors.INSUFFICIENT_BUFFER, _RUN, text)
        if ids.min() < 0 or ids.max() >= size:
            text = f"token ids are in 0..{size - 1}, not in {ids.min()}..{ids.max()}"
            raise WinMLError(errors.E_INVALIDARG, _RUN, text)
        tokens = np.ascontiguousarray(ids, np.int32)
        ends = accumulate(lengths.tolist(), initial=0)
        return [tokens[start:stop] for start, stop in pairwise(ends)]

    def _fitting_context(self, longest: int) -> EmbeddingContext:
        """The context, made larger if a text is longer than its batch."""
        if longest > self._context.size:
            size = min(1 << (longest - 1).bit_length(), self._settings.limit)
            make = partial(EmbeddingContext, self._model, size, self._settings, self._abort)
            self._context = apart(make, self._abort.set)
        return self._context

    def _room(self, shape: tuple[int, int]) -> Rows:
        target = self._target
        if target is None:
            return np.empty(shape, np.float32)
        if target.shape != shape:
            text = f"the bound tensor has the shape {target.shape}, the embeddings have {shape}"
            raise WinMLError(errors.E_INVALIDARG, _RUN, text)
        return target.array()

    def commit(self) -> None:
        """Nothing is kept."""

    def discard(self) -> None:
        """Forget the rows."""
        self._result = None

    def output(self, index: int) -> Storage:
        """Return the rows."""
        if index != 0:
            _no_port("output", index)
        if self._result is None:
            raise WinMLError(errors.E_NOT_VALID_STATE, "IWinMLStage.GetOutput", "nothing was produced yet")
        return self._result

    def abort(self) -> None:
        """Stop a run that another thread is in."""
        self._abort.set()

    def watch(self, request: StopRequest) -> None:
        """Look at `request` in each run."""
        self._abort.request = request


def _batches(lengths: list[int], size: int, max_texts: int) -> Iterator[tuple[int, int]]:
    """Cut texts into runs of neighbours that fit into one batch."""
    start = total = 0
    for index, length in enumerate(lengths):
        if total + length > size or index - start == max_texts:
            yield start, index
            start, total = index, 0
        total += length
    yield start, len(lengths)


def _no_port(what: str, index: int) -> NoReturn:
    raise WinMLError(errors.E_INVALIDARG, "IWinMLStage", f"an embedding stage has no {what} {index}")
