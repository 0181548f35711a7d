"""One `llama_context`: a model's sequence memory and the buffers of its computation."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...errors import E_FAIL, E_UNEXPECTED, LLAMA_DECODE_STATUS, NOT_ENOUGH_MEMORY, NOT_SUPPORTED, WinMLError
from ...handles import Resource
from ...storage import Bytes
from ..activity import SOME_THREAD, Activity, free_last
from ..ffi import view_memory
from ..stopping import StopRequest
from .api import LlamaApi, retyped
from .library import ENGINE, c_library, log
from .memory import host_memory
from .model import LlamaModel

_BUILD = "IWinMLPipelineBuilder.Build"
MAX_ROWS = 32
"""Most tokens of one batch whose logits are wanted."""


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """What a context is made with, apart from its capacity."""

    batch_size: int
    """Most tokens of one call; a smaller capacity lowers it."""
    threads: int
    batch_threads: int
    key_type: int
    """ggml type of the keys in memory."""
    value_type: int
    offload: bool
    position_bytes: int
    """Size of the sequence memory per position, 0 when unknown."""
    adapters: tuple[tuple[int, float], ...] = ()
    """LoRA adapters of the model, with their scales."""
    snapshots: int = 0
    """States of the last positions that recurrent layers keep, so that the sequence can be cut there."""
    drafts: bool = False
    """Whether the context runs the model's own predictor instead of the model."""


class AbortFlag:
    """A flag that the computation reads between two nodes of its graph without the interpreter.

    The callback is `strlen` on a two-byte buffer: "" gives 0 (go on), one character gives 1 (stop). A Python callback
    would take the interpreter lock hundreds of times per token.
    """

    __slots__ = ("_bytes", "_strlen", "address", "request")

    def __init__(self) -> None:
        self._bytes = (ctypes.c_ubyte * 2)()
        self._strlen = c_library().strlen
        self.address = ctypes.addressof(self._bytes)
        self.request: StopRequest | None = None

    def set(self) -> None:
        self._bytes[0] = 1

    def clear(self) -> None:
        """Begin a computation; 0x800704C7 if it shall stop."""
        self._bytes[0] = 0
        request = self.request
        if request is not None and request.cancelled is not None:
            request.check_cancelled()

    @property
    def is_set(self) -> bool:
        return bool(self._bytes[0])

    def install(self, api: LlamaApi, params: Any) -> None:
        """Put the callback into context parameters."""
        params.abort_callback = api.ggml_abort_callback(ctypes.cast(self._strlen, ctypes.c_void_p).value)
        params.abort_callback_data = self.address


class Context:
    """A native context. Used by one thread at a time; frees itself when nothing refers to it or to its logits."""

    __slots__ = (
        "_activity",
        "_decode",
        "_floor",
        "_last_width",
        "_memory",
        "_model",
        "_pointer",
        "_resource",
        "_row",
        "_row_at",
        "batch_size",
        "row_count",
        "snapshots",
    )

    def __init__(self, model: LlamaModel, capacity: int, settings: ContextSettings, abort: AbortFlag) -> None:
        api = model.library.api
        needed = settings.position_bytes * capacity
        limit = host_memory()
        if not settings.offload and limit and needed > limit:
            text = f"{model.path}: {capacity} positions take {needed >> 20} MiB, the machine has {limit >> 20}"
            raise WinMLError(NOT_ENOUGH_MEMORY, _BUILD, text)
        self.batch_size = min(settings.batch_size, capacity)
        self.row_count = 1 if settings.drafts else min(MAX_ROWS, self.batch_size)
        """Most tokens of one batch whose logits are wanted, in this context."""
        model.check()
        ENGINE.is_used = True
        self._activity = Activity(ENGINE, abort.set)
        with log.captured_errors() as errors, self._activity:
            pointer = api.llama_init_from_model(model.pointer, self._params(api, capacity, settings, abort))
        if not pointer:
            text = errors[0] if errors else f"no context of {capacity} positions could be made"
            raise WinMLError(NOT_ENOUGH_MEMORY, _BUILD, f"{model.path}: {text}")
        self._resource = Resource(pointer, partial(free_last, api.llama_free), model.resource, abort)
        self._model = model
        self._pointer = pointer
        memory = api.llama_get_memory(pointer)
        if not memory:
            text = f"{model.path} has no sequence memory: it does not generate text, it embeds it"
            raise WinMLError(NOT_SUPPORTED, _BUILD, f"{text} (llama_options().embeddings, genai.load_embedding)")
        self._memory = memory
        self._decode = api.llama_decode
        self._row_at = retyped(api.llama_get_logits_ith, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
        self._row: tuple[int, Bytes] | None = None
        self.snapshots: int = api.llama_n_rs_seq(pointer)
        """States that are kept: fewer than asked for, none, where the architecture has none."""
        self._last_width = 0
        """Tokens of the last `decode`, if recurrent layers keep the states between them."""
        self._floor = 0
        """The sequence cannot be cut below: a state that was read lacks what its sliding window had left behind."""
        model.adapt(pointer, settings.adapters)

    def _params(self, api: LlamaApi, capacity: int, settings: ContextSettings, abort: AbortFlag) -> Any:
        params = api.llama_context_default_params()
        params.n_ctx = capacity
        params.n_batch = params.n_ubatch = self.batch_size
        params.n_seq_max = 1
        params.n_outputs_max = self.row_count  # buffers grow with it; more rows than this would end the process
        params.n_rs_seq = settings.snapshots
        if settings.drafts:
            params.ctx_type = api.LLAMA_CONTEXT_TYPE_MTP
        params.n_threads = settings.threads
        params.n_threads_batch = settings.batch_threads
        params.type_k = settings.key_type
        params.type_v = settings.value_type
        params.offload_kqv = params.op_offload = settings.offload
        if settings.key_type == settings.value_type == api.GGML_TYPE_F32:
            # who pays for exact keys and values wants exact attention: the fused kernel works in half precision
            params.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.no_perf = True
        params.swa_full = True  # the whole of a sliding window is kept, so that any rewind is possible
        abort.install(api, params)
        return params

    def decode(self, batch: Any) -> int:
        """Run `llama_decode` on a `llama_batch` and return its status."""
        activity = self._activity
        try:
            activity.running = SOME_THREAD
            if activity.barred:
                activity.refuse()
            if self.snapshots:
                self._last_width = batch.n_tokens
            return self._decode(self._pointer, batch)
        finally:
            activity.running = 0

    def ask(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Call a native function on the context."""
        with self._activity:
            return function(self._pointer, *arguments)

    def set_causal(self, is_causal: bool) -> None:
        """Choose whether the rows of a batch attend only to what is before them (the default), or to each other."""
        self.ask(self._model.library.api.llama_set_causal_attn, is_causal)

    def row_address(self) -> int:
        """Address of the last token's logits, float32 (vocabulary size,); valid until the next `decode`."""
        activity = self._activity
        try:  # not `with`, which costs more than the call
            activity.running = SOME_THREAD
            if activity.barred:
                activity.refuse()
            address: int | None = self._row_at(self._pointer, -1)
        finally:
            activity.running = 0
        if not address:
            raise WinMLError(E_UNEXPECTED, "llama_get_logits_ith", "the engine returned no logits")
        return address

    def copy_rows(self, count: int, address: int) -> None:
        """Copy the logits of all `count` tokens of the last batch to `address`, float32 (count, vocabulary size)."""
        size = self._model.vocabulary_size * np.dtype(np.float32).itemsize
        with self._activity:
            first: int | None = self._row_at(self._pointer, 0)
            last: int | None = self._row_at(self._pointer, count - 1)
        if not first or last != first + (count - 1) * size:
            raise WinMLError(E_UNEXPECTED, "llama_get_logits_ith", f"the engine returned no {count} rows of logits")
        ctypes.memmove(address, first, count * size)

    def row(self) -> Bytes:
        """View those logits as bytes. The view keeps the context alive; its content changes with the next `decode`."""
        address = self.row_address()
        if self._row is None or self._row[0] != address:
            size = self._model.vocabulary_size * np.dtype(np.float32).itemsize
            self._row = address, view_memory(address, size, self._resource)
        return self._row[1]

    def truncate(self, position: int) -> bool:
        """Forget everything from `position` on; False when this kind of memory cannot (nothing changes then)."""
        if (self.snapshots and not self._has_state(position)) or (
            self._floor and position < min(self._floor, self.end)
        ):
            return False
        with self._activity:
            done = bool(self._model.library.api.llama_memory_seq_rm(self._memory, 0, position, -1))
        self._last_width = 0
        return done

    def _has_state(self, position: int) -> bool:
        """Whether recurrent layers have the state at `position`.

        They keep those behind the last tokens of the last batch, until the memory is cut once. The engine itself would
        also go to a place whose state it does not have, and go on with another.
        """
        back = self.end - position
        return back <= 0 or back <= min(self.snapshots, self._last_width - 1)

    @property
    def end(self) -> int:
        """The position behind the last one in the memory."""
        with self._activity:
            return self._model.library.api.llama_memory_seq_pos_max(self._memory, 0) + 1

    def forget(self) -> None:
        """Forget the whole sequence."""
        with self._activity:
            self._model.library.api.llama_memory_clear(self._memory, False)
        self._last_width = self._floor = 0

    def write_state(self, path: str) -> str | None:
        """Write the memory of the sequence to a file; return what went wrong."""
        api = self._model.library.api
        with log.captured_errors() as errors, self._activity:
            size = api.llama_state_seq_save_file(self._pointer, os.fsencode(path), 0, None, 0)
        if size and size == os.path.getsize(path):
            return None
        return errors[0] if errors else "the engine wrote less than the state"

    def read_state(self, path: str) -> str | None:
        """Replace the memory of the sequence by that from the start of a file; return what went wrong."""
        api = self._model.library.api
        self.forget()
        tokens, count = (ctypes.c_int32 * 1)(), ctypes.c_size_t()
        with log.captured_errors() as errors, self._activity:
            size = api.llama_state_seq_load_file(self._pointer, os.fsencode(path), 0, tokens, 0, ctypes.byref(count))
            oldest = api.llama_memory_seq_pos_min(self._memory, 0)
        if not size:
            return errors[0] if errors else "the engine gives no reason"
        self._floor = oldest + max(api.llama_model_n_swa(self._model.pointer) - 1, 0) if oldest > 0 else 0
        return None


def decode_error(status: int, context: str, path: str) -> WinMLError:
    """Return the error for a status of `llama_decode` that is not 0."""
    text = {
        1: "no room for the tokens in the sequence memory",
        2: "the run was aborted",
        -1: "the engine refused the batch",
    }.get(status, f"llama_decode returned {status}")
    return WinMLError(LLAMA_DECODE_STATUS.get(status, E_FAIL), context, f"{path}: {text}")
