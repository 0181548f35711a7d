"""Options that only llama.cpp stages have (runtime §15.3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from .checks import INT32_MAX, THREADS_MAX, flag_value, number_value, path_value
from .errors import NOT_SUPPORTED, NotSupportedError
from .handles import Closeable
from .native.backend import LlamaOptions
from .stage_core import StageCore

_POOLINGS = ("mean", "cls", "last", "none")
_CACHE_TYPES = ("f32", "f16", "q8_0")


class LlamaStageOptions(Closeable[StageCore]):
    """Options of one llama.cpp stage: readable always, settable until `build`."""

    __slots__ = ()

    @property
    def thread_count(self) -> int:
        """Threads for single tokens, at most 512; 0 (the default) is the number of CPUs this process may use."""
        return self._options.thread_count

    @thread_count.setter
    def thread_count(self, count: int) -> None:
        self._update("ThreadCount", thread_count=number_value(count, "thread_count", THREADS_MAX))

    @property
    def batch_thread_count(self) -> int:
        """Threads for prompts, at most 512; 0 (the default) is `thread_count`."""
        return self._options.batch_thread_count

    @batch_thread_count.setter
    def batch_thread_count(self, count: int) -> None:
        self._update("BatchThreadCount", batch_thread_count=number_value(count, "batch_thread_count", THREADS_MAX))

    @property
    def batch_size(self) -> int:
        """Most tokens that are computed at once; 0 (the default) is the engine's choice. Longer prompts are split."""
        return self._options.batch_size

    @batch_size.setter
    def batch_size(self, size: int) -> None:
        self._update("BatchSize", batch_size=_count(size, "batch_size"))

    @property
    def key_type(self) -> str:
        """Element type of the cached keys: `"f32"`, `"f16"` (the default) or `"q8_0"`."""
        return self._options.key_type

    @key_type.setter
    def key_type(self, name: str) -> None:
        self._update("KeyType", key_type=_cache_type(name, "key_type"))

    @property
    def value_type(self) -> str:
        """Element type of the cached values: `"f32"`, `"f16"` (the default) or `"q8_0"`."""
        return self._options.value_type

    @value_type.setter
    def value_type(self, name: str) -> None:
        self._update("ValueType", value_type=_cache_type(name, "value_type"))

    @property
    def gpu_layers(self) -> int:
        """Layers to offload; -1 (the default) is all that fit on a GPU target and none on a CPU target."""
        return self._options.gpu_layers

    @gpu_layers.setter
    def gpu_layers(self, count: int) -> None:
        self._update("GpuLayers", gpu_layers=_count(count, "gpu_layers", minimum=-1))

    @property
    def adapters(self) -> tuple[tuple[str, float], ...]:
        """LoRA adapters as (path, scale), applied in this order. Default none."""
        return self._options.adapters

    @adapters.setter
    def adapters(self, adapters: Iterable[tuple[str, float]]) -> None:
        self._update("Adapters", adapters=tuple(_adapter(adapter) for adapter in adapters))

    @property
    def embeddings(self) -> bool:
        """Whether the stage computes embeddings instead of logits. Default False.

        Such a stage keeps no sequence. Input 0 takes the token ids of one or more texts, one after the other, input 1
        how many belong to each; output 0 is FLOAT32 (texts, width), or (tokens, width) without pooling. The sequence
        capacity hint bounds the tokens of one text.
        """
        return self._options.embeddings

    @embeddings.setter
    def embeddings(self, value: bool) -> None:
        self._update("Embeddings", embeddings=flag_value(value, "embeddings"))

    @property
    def pooling(self) -> str | None:
        """How the embeddings of tokens become that of a text: `"mean"`, `"cls"`, `"last"`, or `"none"`.

        None (the default): as the file says, and `"none"` where it says nothing.
        """
        return self._options.pooling

    @pooling.setter
    def pooling(self, name: str | None) -> None:
        if name is not None and name not in _POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(_POOLINGS)}, or None, not {name!r}")
        self._update("Pooling", pooling=name)

    @property
    def _options(self) -> LlamaOptions:
        return self._llama_core("Get").options.llama or LlamaOptions()

    def _update(self, member: str, **changes: Any) -> None:
        core = self._llama_core(member)
        core.check_open_for_options(f"LlamaStageOptions.{member}")
        core.options.llama = replace(self._options, **changes)

    def _llama_core(self, member: str) -> StageCore:
        core = self._core
        if not core.is_llama:
            raise NotSupportedError(
                NOT_SUPPORTED, f"LlamaStageOptions.{member}", f"{core.debug_name} is not a llama.cpp stage"
            )
        return core


def _count(value: int, name: str, minimum: int = 0) -> int:
    return number_value(value, name, INT32_MAX, minimum)


def _cache_type(name: str, option: str) -> str:
    if name not in _CACHE_TYPES:
        raise ValueError(f"{option} must be one of {', '.join(_CACHE_TYPES)}, not {name!r}")
    return name


def _adapter(adapter: tuple[str, float]) -> tuple[str, float]:
    try:
        path, scale = adapter
        return path_value(path, "adapter path"), float(scale)
    except (TypeError, ValueError) as error:
        raise ValueError(f"an adapter is a pair (path, scale), not {adapter!r}: {error}") from None
