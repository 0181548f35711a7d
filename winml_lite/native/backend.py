"""The border between the object model and an engine (runtime §1.4 and 22).

A `Backend` turns an artifact into a `StageExecutor`: one ONNX Runtime session or one llama.cpp context, driven by
position. The backends are loaded on first use, one per process, and can be replaced in tests.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from ..files.artifact import Artifact, OnnxArtifact
from ..storage import Storage
from ..values import Descriptor, EngineInfo, ExecutionTargetKind, SpeculativeCapabilities
from .hardware import Device
from .saved_state import SavedState
from .segments import Segments
from .stopping import StopRequest

EngineKey = Literal["ort", "llama"]

SMALLEST_EXTERNAL = 1024
"""Bytes from which on an initializer of a compiled model lies outside of the artifact, where any do."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a stage shall run. `kind` None is automatic placement."""

    kind: ExecutionTargetKind | None = None
    provider: str | None = None  # pinned
    devices: tuple[Device, ...] = ()
    """The chosen piece of hardware as its sources saw it; () = any of the kind."""
    is_exact: bool = False
    """Whether the caller named that hardware, and not only its kind."""


@dataclass(frozen=True, slots=True)
class OrtOptions:
    """What `Stage.ort_options()` collected."""

    thread_count: int = 0
    """Intra-operator threads; 0 = the number of CPUs this process may use."""
    provider_options: tuple[tuple[str, str], ...] = ()
    session_config: tuple[tuple[str, str], ...] = ()
    operator_libraries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LlamaOptions:
    """What `Stage.llama_options()` collected."""

    thread_count: int = 0
    """Threads for one token; 0 = the number of CPUs this process may use."""
    batch_thread_count: int = 0
    """Threads for prompts; 0 = `thread_count`."""
    batch_size: int = 0
    """Most tokens in one `llama_decode`; 0 = 512."""
    key_type: str = "f16"
    value_type: str = "f16"
    gpu_layers: int = -1
    """Layers to offload; -1 = all that fit where the target is a GPU, none on CPU."""
    adapters: tuple[tuple[str, float], ...] = ()
    embeddings: bool = False
    """Compute embeddings of texts instead of logits."""
    pooling: str | None = None
    """How the embeddings of tokens become that of a text: "mean", "cls", "last", "none"; None = as the file says."""


@dataclass(frozen=True, slots=True)
class StageOptions:
    """Everything a caller set on a stage before `build`."""

    state_pairs: tuple[tuple[int, int], ...] = ()
    caller_owns_state: bool = False
    capacity_hint: int = 0
    """0 = no hint."""
    dimension_overrides: tuple[tuple[str, int], ...] = ()
    draft_token_limit: int = 0
    draft_predictor_enabled: bool = False
    draft_predictor_path: str | None = None
    ort: OrtOptions | None = None
    llama: LlamaOptions | None = None
    """Both are None unless an option of that engine was set."""
    debug_name: str = "stage"


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What an ahead-of-time compilation shall make of a model."""

    is_durable: bool
    """Whether the result shall suit any hardware, and not only the device it is compiled for."""
    dimension_overrides: tuple[tuple[str, int], ...] = ()
    operator_libraries: tuple[str, ...] = ()
    provider_options: tuple[tuple[str, str], ...] = ()


class CompileOutput(Protocol):
    """Takes what a compilation makes. What it raises ends the compilation and reaches the caller as it is.

    Either all comes through its calls, on the thread of the compilation, initializers first; or it has a path, and the
    engine may write some or all of the files itself. Data is readable until the call returns.
    """

    @property
    def path(self) -> str | None:
        """File of the artifact, in a folder for nothing else; None where everything comes through the calls."""

    @property
    def weights(self) -> str | None:
        """Name of a file beside `path` for large initializers; with a path, None has all in the artifact."""

    def place(self, data: memoryview) -> tuple[str, int] | None:
        """Take an initializer; return the location and the offset of its bytes, None to have it in the artifact."""

    def write(self, data: memoryview) -> None:
        """Take the next piece of the artifact."""

    def restart(self) -> str:
        """Forget what came so far, and return the path that the engine is to write; an error where there is none."""


class Sequence(Protocol):
    """State that an executor keeps between runs. Members are cheap; refusals raise WinMLError and change nothing."""

    @property
    def position(self) -> int:
        """Positions consumed by committed runs."""

    @property
    def capacity(self) -> int:
        """Effective capacity; 0 = unbounded."""

    @property
    def declared_capacity(self) -> int | None:
        """What the artifact declares."""

    def rewind(self, position: int) -> None:
        """Truncate to `position`; beyond the present one is 0x80070057."""

    def set_capacity(self, capacity: int) -> None:
        """Change the capacity; after the first run the state is dropped (position 0)."""

    def reset(self) -> None:
        """Drop the state: position 0."""


class Speculation(Protocol):
    """Steps over several positions at once, with the logits of each, and drafts of what may follow (runtime §10). They
    leave the bindings and the outputs of runs as they are.
    """

    @property
    def capabilities(self) -> SpeculativeCapabilities:
        """What steps and drafts can be; changes with the capacity."""

    def step(self, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        """Append the tokens, int32 (n,), and return their logits, float32 (n, vocabulary size), in private memory.

        The position advances by n. A step that fails moves nothing: 0x80070057 when it is too wide, 0x8000000B when
        the capacity is too small for it.
        """

    def propose(self, pending: int, maximum: int) -> list[int]:
        """Draft at most `maximum` tokens to follow the sequence and `pending`, which is not consumed yet."""


class StageExecutor(Protocol):
    """One built stage.

    A run is split in two, so that a pipeline of several stages is all-or-nothing: `run` computes, then either `commit`
    makes its state and outputs the present ones, or `discard` drops them and leaves the state of before. The executor
    is used by one thread at a time.
    """

    inputs: tuple[Descriptor, ...]
    outputs: tuple[Descriptor, ...]
    target_kind: ExecutionTargetKind
    sequence: Sequence | None
    """None for a stateless stage."""

    @property
    def segments(self) -> Segments | None:
        """None for a stage that takes no embedding rows."""

    @property
    def speculation(self) -> Speculation | None:
        """None for a stage without state of its own, or one whose inputs are no token ids."""

    @property
    def saved_state(self) -> SavedState | None:
        """None for a stage without state of its own."""

    def bind_input(self, index: int, storage: Storage | None) -> None:
        """Bind (None: unbind) an input until the next bind; contents are read at `run`. 0x80070057 on a mismatch of
        type, rank or a fixed extent, and for a managed state input.
        """

    def bind_output(self, index: int, storage: Storage | None, wanted: bool) -> None:
        """Choose where an output goes: into `storage`, with None and `wanted` into fresh memory, or nowhere."""

    def run(self) -> None:
        """Execute once. A missing binding is 0x80070057 and nothing executes."""

    def commit(self) -> None:
        """Make the state of the last run the present one."""

    def discard(self) -> None:
        """Forget the last run."""

    def output(self, index: int) -> Storage:
        """The storage that output `index` of the last run went to. Fresh memory stays valid and unchanged for as long
        as somebody refers to the storage, whatever runs follow.
        """

    def abort(self) -> None:
        """Ask a `run` on another thread to stop early; that run then fails with 0x800704C7."""

    def watch(self, request: StopRequest) -> None:
        """Look at `request` in each run, and fail with 0x800704C7 for it."""


class OrtStageExecutor(StageExecutor, Protocol):
    """A built stage of ONNX Runtime, represented by the execution provider `provider_name`."""

    provider_name: str

    @property
    def node_counts(self) -> dict[str, int] | None:
        """Operators that each provider took, the most first; None where the engine does not tell."""


class Backend(Protocol):
    """One engine of this process."""

    def build_stage(self, artifact: Artifact, placement: Placement, options: StageOptions) -> StageExecutor:
        """Make the session or the context; failures are WinMLError with the engine's text in `native_message`."""

    def describe(self) -> EngineInfo:
        """Version and path; never raises (a missing engine says why in `problem`)."""

    def devices(self) -> tuple[Device, ...]:
        """Hardware that the engine can compute on. Loads its library; 0x8007007E when there is none."""


class CompilingBackend(Backend, Protocol):
    """An engine that compiles models ahead of time."""

    def compile_model(
        self, artifact: OnnxArtifact, placement: Placement, options: CompileOptions, output: CompileOutput
    ) -> None:
        """Compile a model for a placement.

        0x80070490 without the provider or the device, 0x80070032 where the provider compiles nothing, 0x80070216 when
        the artifact would be larger than 2 GiB.
        """

    def save_optimized(self, artifact: OnnxArtifact, options: CompileOptions, path: str) -> None:
        """Write the model as a CPU session has optimised it into the file `path`, in the format of the engine."""


_MODULES: dict[EngineKey, str] = {"ort": ".ort.backend", "llama": ".llama.backend"}


@dataclass(slots=True)
class _Registry:
    loaded: dict[EngineKey, Backend] = field(default_factory=dict)


_registry = _Registry()


def backend(key: EngineKey) -> Backend:
    """Return the backend, importing its module on first use; the engine's library is loaded when it is needed."""
    found = _registry.loaded.get(key)
    if found is None:
        module = importlib.import_module(_MODULES[key], __package__)
        found = _registry.loaded.setdefault(key, module.create_backend())
    return found


@contextmanager
def replaced_backend(key: EngineKey, replacement: Backend) -> Iterator[None]:
    """Use `replacement` for an engine inside a `with` block (a seam for tests)."""
    before = _registry.loaded.get(key)
    _registry.loaded[key] = replacement
    try:
        yield
    finally:
        if before is None:
            del _registry.loaded[key]
        else:
            _registry.loaded[key] = before
