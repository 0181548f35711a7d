"""The C functions of llama.cpp that this package calls, as typed stubs.

Structures, constants and functions come from `llama_cpp.llama_cpp`, the low-level ctypes module of llama-cpp-python,
because it changes in step with the library in the same package: a structure with moved fields would corrupt memory
without a sign. This is the only file that imports it. `LlamaApi` is the list of names in use; a missing one is one
clear error.

Pointers are plain integers here. Not here: policy of any kind (`library.py` loads once and routes the log).
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.machinery
import importlib.util
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, Protocol, cast

from ...errors import MODULE_NOT_FOUND, WinMLError

MEND = (
    "install llama.cpp with `pip install 'winml-lite[gguf]'`, or turn the file into an ONNX model with "
    "`winml-lite convert FILE FOLDER`, which needs nothing else"
)
_PACKAGE = "llama_cpp"
_MEDIA = f"{_PACKAGE}.mtmd_cpp"
_DISTRIBUTION = "llama-cpp-python"


class LlamaApi(Protocol):
    """What is used of the module `llama_cpp.llama_cpp`. Parameters are positional; text is bytes."""

    GGML_TYPE_F32: int
    GGML_TYPE_F16: int
    GGML_TYPE_Q8_0: int
    LLAMA_CONTEXT_TYPE_MTP: int
    LLAMA_FLASH_ATTN_TYPE_DISABLED: int
    LLAMA_POOLING_TYPE_CLS: int
    LLAMA_POOLING_TYPE_LAST: int
    LLAMA_POOLING_TYPE_MEAN: int
    LLAMA_POOLING_TYPE_NONE: int
    LLAMA_POOLING_TYPE_RANK: int
    LLAMA_POOLING_TYPE_UNSPECIFIED: int
    LLAMA_ROPE_TYPE_IMROPE: int
    LLAMA_ROPE_TYPE_MROPE: int
    LLAMA_TOKEN_ATTR_CONTROL: int
    LLAMA_TOKEN_ATTR_USER_DEFINED: int

    llama_log_callback: Callable[..., Any]
    llama_progress_callback: Callable[..., Any]
    ggml_abort_callback: Callable[..., Any]
    llama_batch: Callable[[], Any]

    def llama_backend_init(self) -> None: ...
    def llama_log_set(self, callback: Any, data: None, /) -> None: ...
    def llama_print_system_info(self) -> bytes: ...
    def llama_supports_gpu_offload(self) -> bool: ...

    def llama_model_default_params(self) -> Any: ...
    def llama_model_load_from_file(self, path: bytes, params: Any, /) -> int | None: ...
    def llama_model_free(self, model: int, /) -> None: ...
    def llama_model_get_vocab(self, model: int, /) -> int: ...
    def llama_model_n_ctx_train(self, model: int, /) -> int: ...
    def llama_model_n_embd_inp(self, model: int, /) -> int: ...
    def llama_model_n_embd_out(self, model: int, /) -> int: ...
    def llama_model_rope_type(self, model: int, /) -> int: ...
    def llama_model_has_encoder(self, model: int, /) -> bool: ...
    def llama_model_has_decoder(self, model: int, /) -> bool: ...
    def llama_model_is_recurrent(self, model: int, /) -> bool: ...
    def llama_model_is_hybrid(self, model: int, /) -> bool: ...

    def llama_adapter_lora_init(self, model: int, path: bytes, /) -> int | None: ...
    def llama_set_adapters_lora(self, context: int, adapters: Any, count: int, scales: Any, /) -> int: ...

    def llama_context_default_params(self) -> Any: ...
    def llama_init_from_model(self, model: int, params: Any, /) -> int | None: ...
    def llama_free(self, context: int, /) -> None: ...
    def llama_n_rs_seq(self, context: int, /) -> int: ...
    def llama_get_memory(self, context: int, /) -> int | None: ...
    def llama_memory_clear(self, memory: int, data: bool, /) -> None: ...
    def llama_memory_seq_rm(self, memory: int, sequence: int, start: int, stop: int, /) -> bool: ...
    def llama_memory_seq_pos_max(self, memory: int, sequence: int, /) -> int: ...
    def llama_memory_seq_pos_min(self, memory: int, sequence: int, /) -> int: ...
    def llama_model_n_swa(self, model: int, /) -> int: ...
    def llama_state_seq_save_file(
        self, context: int, path: bytes, sequence: int, tokens: Any, count: int, /
    ) -> int: ...
    def llama_state_seq_load_file(
        self, context: int, path: bytes, sequence: int, tokens: Any, capacity: int, count: Any, /
    ) -> int: ...
    def llama_set_causal_attn(self, context: int, causal: bool, /) -> None: ...
    def llama_decode(self, context: int, batch: Any, /) -> int: ...
    def llama_get_logits_ith(self, context: int, index: int, /) -> Any: ...
    def llama_get_embeddings_ith(self, context: int, index: int, /) -> Any: ...
    def llama_get_embeddings_seq(self, context: int, sequence: int, /) -> Any: ...
    def llama_pooling_type(self, context: int, /) -> int: ...

    def llama_vocab_n_tokens(self, vocab: int, /) -> int: ...
    def llama_vocab_bos(self, vocab: int, /) -> int: ...
    def llama_vocab_eos(self, vocab: int, /) -> int: ...
    def llama_vocab_get_add_bos(self, vocab: int, /) -> bool: ...
    def llama_vocab_get_add_eos(self, vocab: int, /) -> bool: ...
    def llama_vocab_get_text(self, vocab: int, token: int, /) -> bytes: ...
    def llama_vocab_get_attr(self, vocab: int, token: int, /) -> int: ...
    def llama_vocab_is_eog(self, vocab: int, token: int, /) -> bool: ...
    def llama_tokenize(
        self, vocab: int, text: bytes, size: int, tokens: Any, count: int, special: bool, parse: bool, /
    ) -> int: ...
    def llama_token_to_piece(
        self, vocab: int, token: int, buffer: Any, size: int, strip: int, special: bool, /
    ) -> int: ...


class MediaApi(Protocol):
    """What is used of the module `llama_cpp.mtmd_cpp`, which belongs to libmtmd."""

    MTMD_INPUT_CHUNK_TYPE_TEXT: int
    MTMD_INPUT_CHUNK_TYPE_IMAGE: int

    mtmd_input_text: Callable[..., Any]
    mtmd_progress_callback: Callable[..., Any]

    def mtmd_log_set(self, callback: Any, data: None, /) -> None: ...
    def mtmd_default_marker(self) -> bytes: ...
    def mtmd_context_params_default(self) -> Any: ...
    def mtmd_init_from_file(self, path: bytes, model: int | None, params: Any, /) -> int | None: ...
    def mtmd_free(self, context: int, /) -> None: ...
    def mtmd_support_vision(self, context: int, /) -> bool: ...
    def mtmd_support_audio(self, context: int, /) -> bool: ...
    def mtmd_get_audio_sample_rate(self, context: int, /) -> int: ...
    def mtmd_decode_use_non_causal(self, context: int, chunk: int, /) -> bool: ...
    def mtmd_decode_use_mrope(self, context: int, /) -> bool: ...
    def mtmd_bitmap_init(self, width: int, height: int, pixels: Any, /) -> int | None: ...
    def mtmd_bitmap_init_from_audio(self, count: int, samples: Any, /) -> int | None: ...
    def mtmd_bitmap_free(self, bitmap: int, /) -> None: ...
    def mtmd_input_chunks_init(self) -> int | None: ...
    def mtmd_input_chunks_free(self, chunks: int, /) -> None: ...
    def mtmd_input_chunks_size(self, chunks: int, /) -> int: ...
    def mtmd_input_chunks_get(self, chunks: int, index: int, /) -> int: ...
    def mtmd_tokenize(self, context: int, chunks: int, text: Any, bitmaps: Any, count: int, /) -> int: ...
    def mtmd_input_chunk_get_type(self, chunk: int, /) -> int: ...
    def mtmd_input_chunk_get_n_tokens(self, chunk: int, /) -> int: ...
    def mtmd_input_chunk_get_n_pos(self, chunk: int, /) -> int: ...
    def mtmd_input_chunk_get_tokens_text(self, chunk: int, count: Any, /) -> Any: ...
    def mtmd_input_chunk_get_tokens_image(self, chunk: int, /) -> int: ...
    def mtmd_image_tokens_get_decoder_pos(self, tokens: int, start: int, index: int, /) -> Any: ...
    def mtmd_encode_chunk(self, context: int, chunk: int, /) -> int: ...
    def mtmd_get_output_embd(self, context: int, /) -> Any: ...


class PredictorApi(Protocol):
    """What is used of the module `llama_cpp.llama_cpp_ext`: functions that llama.cpp exports but does not promise."""

    def llama_set_embeddings_nextn(self, context: int, value: bool, masked: bool, /) -> None: ...
    def llama_get_embeddings_nextn(self, context: int, /) -> Any: ...
    def llama_get_embeddings_nextn_ith(self, context: int, index: int, /) -> Any: ...


def predictor_api() -> PredictorApi | None:
    """Return the functions for a model's own predictor; None when this library does not have them."""
    try:
        return cast(PredictorApi, importlib.import_module(f"{_PACKAGE}.{_PACKAGE}_ext"))
    except (ImportError, AttributeError):  # the module looks for every one of its symbols when it is imported
        return None


def installed_version() -> str | None:
    """Version of llama-cpp-python, without importing it; None when it is not installed."""
    import importlib.metadata as distributions  # slow, and only messages and listings tell the version

    try:
        return distributions.version(_DISTRIBUTION)
    except distributions.PackageNotFoundError:
        return None


def import_api() -> tuple[LlamaApi, str]:
    """Import the low-level module, which loads the library; return it with the path of the library.

    Whatever goes wrong is 0x8007007E with the mend.
    """
    context = "loading llama.cpp"
    try:
        _ensure_package()
        module = importlib.import_module(f"{_PACKAGE}.{_PACKAGE}")
    except Exception as error:  # a missing package, library or symbol, or a library for another CPU
        version = installed_version()
        found = f"{_DISTRIBUTION} {version} does not load" if version else f"{_DISTRIBUTION} is not installed"
        raise WinMLError(MODULE_NOT_FOUND, context, f"{found} ({type(error).__name__}: {error}); {MEND}") from error
    _check_names(module, LlamaApi, context)
    path = getattr(getattr(module, "_lib", None), "_name", None)
    return cast(LlamaApi, module), str(path or module.__file__)


def has_media_api() -> bool:
    """Whether the package comes with libmtmd; nothing is loaded."""
    return importlib.util.find_spec(_MEDIA) is not None


def import_media_api() -> MediaApi:
    """Import the module of libmtmd, which loads that library; 0x8007007E when it cannot. llama.cpp is loaded before."""
    context = "loading libmtmd"
    try:
        module = importlib.import_module(_MEDIA)
    except Exception as error:
        text = f"libmtmd of {_DISTRIBUTION} {installed_version()} does not load ({type(error).__name__}: {error})"
        raise WinMLError(MODULE_NOT_FOUND, context, text) from error
    _check_names(module, MediaApi, context)
    return cast(MediaApi, module)


def _check_names(module: types.ModuleType, api: type, context: str) -> None:
    missing = [name for name in names_in_use(api) if not hasattr(module, name)]
    if missing:
        text = f"{_DISTRIBUTION} {installed_version()} has no {missing[0]}; {MEND}"
        raise WinMLError(MODULE_NOT_FOUND, context, text)


def names_in_use(api: type = LlamaApi) -> list[str]:
    """Every C name that an API lists."""
    members = [*api.__annotations__, *vars(api)]
    return [name for name in members if name.lower().startswith(("llama_", "ggml_", "mtmd_"))]


def retyped(function: Any, result: Any, *arguments: Any) -> Callable[..., Any]:
    """Return a second view of a C function with other C types: a plain address is cheaper than a typed pointer."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return ctypes.CFUNCTYPE(result, *arguments)(address)


# The body of `llama_cpp/__init__.py` imports the package's high-level API, its chat formats and what they need: three
# quarters of the import time, and its logger takes over the process-wide log callback. Nothing of it is needed here, so
# the package object is made without running the body. Whoever imports `llama_cpp` in the same process gets the body run
# at the first name they ask for.
_body = threading.RLock()


class _DeferredPackage(types.ModuleType):
    """A package whose `__init__` has not run yet; it runs at the first access to a name that is missing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__all__", "__version__"):
            raise AttributeError(name)  # what inspection probes for
        with _body:
            state = vars(self)
            if not state.get("_body_started"):
                state["_body_started"] = True
                assert self.__spec__ is not None and self.__spec__.loader is not None
                try:
                    self.__spec__.loader.exec_module(self)
                except BaseException:
                    state["_body_started"] = False
                    raise
            if name in state:
                return state[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


def _ensure_package() -> None:
    """Put the package into `sys.modules` without running its body, unless somebody imported it already."""
    if _PACKAGE in sys.modules:
        return
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
        return  # absent, or packed in an unusual way: the plain import decides
    package = importlib.util.module_from_spec(spec)
    package.__class__ = _DeferredPackage
    sys.modules[_PACKAGE] = package
