"""A scriptable engine behind the border of `winml_lite/native/backend.py`.

`FakeBackend()` evaluates ONNX graphs (`graph.py`). `FakeBackend(logits=...)` is a token model: it keeps the ids it has
consumed, and each run asks `logits(ids)` for the next row, or for its beginning; the rest is 0. Vocabulary size and
context length are those of the `.gguf` file, unless they are given. `Script` makes runs block or fail, and counts.

    with replaced_backend("ort", FakeBackend(script := Script(fail_at={2: WinMLError(E_FAIL)}))): ...
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import numpy as np
import numpy.typing as npt

from fakes.segments import FakeSegments
from winml_lite.errors import (
    CANCELLED,
    E_BOUNDS,
    E_INVALIDARG,
    E_NOT_VALID_STATE,
    MODULE_NOT_FOUND,
    NOT_FOUND,
    NOT_SUPPORTED,
    WinMLError,
)
from winml_lite.files.artifact import Artifact, GgufArtifact
from winml_lite.native.backend import Placement, Speculation, StageOptions
from winml_lite.native.backend import Sequence as StageSequence
from winml_lite.native.hardware import Device
from winml_lite.native.saved_state import SavedState
from winml_lite.native.segments import SegmentPlan, Segments
from winml_lite.native.stopping import StopRequest
from winml_lite.storage import Storage, check_descriptor
from winml_lite.values import FREE_DIMENSION, NUMPY_NAMES, Descriptor, EngineInfo, ExecutionTargetKind, TensorDataType

Array = npt.NDArray[Any]
Logits = Callable[[Sequence[int]], npt.ArrayLike]

_DEFAULT_CAPACITY = 4096
_FROM_NAME = {name: data_type for data_type, name in NUMPY_NAMES.items()}


class Block:
    """Makes one run wait: `entered` is set when it has begun, it goes on when `release` is set."""

    def __init__(self) -> None:
        self.entered = Event()
        self.release = Event()


@dataclass
class Script:
    """What shall happen in which run (numbered from 1, over all executors of the backend), and what has happened."""

    fail_at: dict[int, BaseException] = field(default_factory=dict)
    block_at: dict[int, Block] = field(default_factory=dict)
    call_at: dict[int, Callable[[], object]] = field(default_factory=dict)
    call_after: dict[int, Callable[[], object]] = field(default_factory=dict)
    """What to call when the state has moved, in decoders only."""
    fail_build: WinMLError | None = None
    fail_state: bool = False
    """Whether saving and loading of states fails."""
    builds: int = 0
    runs: int = 0
    commits: int = 0
    discards: int = 0
    resets: int = 0
    binds: int = 0
    placements: list[Placement] = field(default_factory=list)
    options: list[StageOptions] = field(default_factory=list)


class FakeBackend:
    """Implements `Backend`. One instance may stand in for both engines."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        logits: Logits | None = None,
        vocabulary_size: int = 0,
        declared_capacity: int | None = None,
        gpu: bool = False,
        devices: Iterable[Device] = (),
        problem: str | None = None,
    ) -> None:
        self.script = script or Script()
        self.logits = logits
        self.vocabulary_size = vocabulary_size
        self.declared_capacity = declared_capacity
        self.gpu = gpu
        self.listed = tuple(devices)
        self.problem = problem
        self._built: list[weakref.ref[FakeExecutor]] = []

    def build_stage(self, artifact: Artifact, placement: Placement, options: StageOptions) -> FakeExecutor:
        script = self.script
        script.builds += 1
        script.placements.append(placement)
        script.options.append(options)
        if self.problem is not None:
            raise WinMLError(MODULE_NOT_FOUND, "loading the fake engine", self.problem)
        if script.fail_build is not None:
            raise script.fail_build
        kind = self._resolve(artifact, placement)
        executor: FakeExecutor
        if self.logits is not None or isinstance(artifact, GgufArtifact):
            executor = TokenExecutor(self, artifact, kind, options)
        else:
            from fakes.graph import GraphExecutor  # the evaluator is slow to import, and a decoder needs none

            executor = GraphExecutor(script, artifact, kind, options)
        self._built.append(weakref.ref(executor))
        return executor

    @property
    def executors(self) -> list[FakeExecutor]:
        """Executors that are alive, in the order they were built."""
        return [executor for reference in self._built if (executor := reference()) is not None]

    def _resolve(self, artifact: Artifact, placement: Placement) -> ExecutionTargetKind:
        is_llama = isinstance(artifact, GgufArtifact)
        if placement.kind is None:
            return ExecutionTargetKind.GPU if self.gpu else ExecutionTargetKind.CPU
        if placement.provider not in (None, "CPUExecutionProvider"):
            raise WinMLError(NOT_FOUND, "", f"no provider {placement.provider}; there is CPUExecutionProvider")
        if placement.kind is ExecutionTargetKind.NPU or (placement.kind is ExecutionTargetKind.GPU and not self.gpu):
            raise WinMLError(
                NOT_SUPPORTED if is_llama else NOT_FOUND, "", f"no {placement.kind.name} in the fake engine"
            )
        return placement.kind

    def describe(self) -> EngineInfo:
        version = None if self.problem else "1.0"
        return EngineInfo("fake", (".onnx", ".ort", ".gguf"), version, None, self.problem)

    def devices(self) -> tuple[Device, ...]:
        if self.problem is not None:
            raise WinMLError(MODULE_NOT_FOUND, "loading the fake engine", self.problem)
        return self.listed


class FakeExecutor(ABC):
    """Bindings, publication, counting, blocking and failing; `compute` is for the two kinds of model below."""

    inputs: tuple[Descriptor, ...]
    outputs: tuple[Descriptor, ...]
    sequence: StageSequence | None = None

    @property
    def segments(self) -> Segments | None:
        return None

    @property
    def speculation(self) -> Speculation | None:
        return None

    @property
    def saved_state(self) -> SavedState | None:
        return None

    def __init__(self, script: Script, kind: ExecutionTargetKind, debug_name: str) -> None:
        self.script = script
        self.target_kind = kind
        self.provider_name = "CPUExecutionProvider"
        self.node_counts: dict[str, int] | None = None
        self.debug_name = debug_name
        self.bound: dict[int, Storage] = {}
        self.places: dict[int, Storage | None] = {}
        self.results: dict[int, Storage] = {}
        self._block: Block | None = None
        self._aborted = False
        self._request: StopRequest | None = None

    def bind_input(self, index: int, storage: Storage | None) -> None:
        self.script.binds += 1
        if storage is None:
            self.bound.pop(index, None)
            return
        self.check_input(index, storage)
        self.bound[index] = storage

    def check_input(self, index: int, storage: Storage) -> None:
        check_descriptor(storage, self.inputs[index], f"{self.debug_name}: input {index}")

    def bind_output(self, index: int, storage: Storage | None, wanted: bool) -> None:
        if index >= len(self.outputs):
            raise WinMLError(E_INVALIDARG, "", f"there is no output {index}")
        if storage is not None:
            check_descriptor(storage, self.outputs[index], f"{self.debug_name}: output {index}")
        place = self.places.get(index)
        if place is not None and place is not storage:
            self.results.pop(index, None)  # an engine keeps no tensor that it does not write to any more
        if wanted:
            self.places[index] = storage
        else:
            self.places.pop(index, None)

    def run(self) -> None:
        inputs = self.gathered()
        self.follow_script()
        self._publish(self.compute(inputs))

    def follow_script(self) -> None:
        """Count a run, and let it block or fail when its turn has come."""
        script = self.script
        script.runs += 1
        number = script.runs
        self._aborted = False
        if self._request is not None:
            self._request.check_cancelled()
        block = script.block_at.get(number)
        if block is not None:
            self._block = block
            block.entered.set()
            assert block.release.wait(100), "nobody released the blocked run"
            self._block = None
        if number in script.call_at:
            script.call_at[number]()
        if self._aborted:
            raise WinMLError(CANCELLED, "", "the run was aborted")
        failure = script.fail_at.get(number)
        if failure is not None:
            raise failure

    def gathered(self) -> list[Array]:
        """The values of all inputs; what a run is refused for before it begins, it is refused for here."""
        self.require_inputs(range(len(self.inputs)), ())
        return [self.bound[index].array() for index in range(len(self.inputs))]

    def require_inputs(self, indices: Iterable[int], kept: Container[int]) -> None:
        """Raise 0x80070057 for the first input that is neither bound nor kept by the stage itself."""
        missing = [index for index in indices if index not in self.bound and index not in kept]
        if missing:
            raise WinMLError(E_INVALIDARG, "", f"{self.debug_name}: input {missing[0]} is not bound")

    @abstractmethod
    def compute(self, inputs: list[Array]) -> list[Array]:
        """Return the outputs."""

    def _publish(self, arrays: list[Array]) -> None:
        results: dict[int, Storage] = {}
        for index, place in self.places.items():
            array = np.ascontiguousarray(arrays[index]).reshape(np.shape(arrays[index]))
            if place is None:
                flat = array.reshape(-1).view(np.uint8).copy()
                results[index] = Storage(flat, _FROM_NAME[array.dtype.name], array.shape)
                continue
            if place.shape != array.shape:
                raise WinMLError(E_INVALIDARG, "", f"output {index} is {array.shape}, the tensor {place.shape}")
            place.array()[...] = array
            results[index] = place
        self.results = results

    def commit(self) -> None:
        self.script.commits += 1

    def discard(self) -> None:
        self.script.discards += 1

    def output(self, index: int) -> Storage:
        if index not in self.results:
            raise WinMLError(E_NOT_VALID_STATE, "", f"{self.debug_name}: output {index} was not produced")
        return self.results[index]

    def watch(self, request: StopRequest) -> None:
        self._request = request

    def abort(self) -> None:
        self._aborted = True
        if self._block is not None:
            self._block.release.set()


class TokenExecutor(FakeExecutor):
    """A decoder: input 0 takes ids, output 0 gives one row of logits, the state is the list of consumed ids."""

    def __init__(
        self, backend: FakeBackend, artifact: Artifact, kind: ExecutionTargetKind, options: StageOptions
    ) -> None:
        super().__init__(backend.script, kind, options.debug_name)
        self._backend = backend
        self._file = artifact.file if isinstance(artifact, GgufArtifact) else None
        self.selection: tuple[Storage, SegmentPlan] | None = None
        self.ends_with_segment = False
        self._took_segment = False
        declared, vocabulary_size = backend.declared_capacity or 64, backend.vocabulary_size
        if isinstance(artifact, GgufArtifact):
            metadata = artifact.file.metadata
            declared = backend.declared_capacity or _number(metadata[f"{artifact.file.architecture}.context_length"])
            vocabulary_size = vocabulary_size or len(_texts(metadata["tokenizer.ggml.tokens"]))
        self.inputs = ((TensorDataType.INT32, (1, FREE_DIMENSION)),)
        self.outputs = ((TensorDataType.FLOAT32, (1, vocabulary_size)),)
        capacity = options.capacity_hint or min(declared, _DEFAULT_CAPACITY)
        self.tokens = FakeSequence(backend.script, declared, capacity)
        self.sequence = self.tokens

    @property
    def segments(self) -> FakeSegments | None:
        if self._file is None or "token_embd.weight" not in self._file.tensors:
            return None  # a file without weights, made for tests that need none
        return FakeSegments(self, self._file)

    def run(self) -> None:
        segments = self.segments
        self._took_segment = self.selection is not None and segments is not None
        if segments is None or self.selection is None:
            super().run()
            return
        self.follow_script()
        self.results = {}
        ids = segments.ids()
        self._check_room(ids)
        self.tokens.pending = ids

    @property
    def speculation(self) -> Speculation:
        from fakes.speculation import FakeSpeculation

        return FakeSpeculation(self, self.tokens)

    @property
    def saved_state(self) -> SavedState:
        from fakes.saved_state import FakeSavedState

        return FakeSavedState(self.tokens, self.script)

    def check_input(self, index: int, storage: Storage) -> None:
        shape = storage.shape
        is_row = len(shape) == 1 or (len(shape) == 2 and shape[0] == 1)
        if storage.data_type not in (TensorDataType.INT32, TensorDataType.INT64) or not is_row or not shape[-1]:
            raise WinMLError(E_INVALIDARG, "", f"input 0 takes ids of shape (n,) or (1, n), not {storage.descriptor}")

    def compute(self, inputs: list[Array]) -> list[Array]:
        sequence, vocabulary_size = self.tokens, self.outputs[0][1][-1]
        ids: list[int] = inputs[0].reshape(-1).tolist()
        if not ids or not all(0 <= token < vocabulary_size for token in ids):
            raise WinMLError(E_INVALIDARG, "", f"there is no token {ids}")
        self._check_room(ids)
        assert self._backend.logits is not None
        given = np.asarray(self._backend.logits([*sequence.ids, *ids]), np.float32)[:vocabulary_size]
        row = np.zeros((1, vocabulary_size), np.float32)
        row[0, : given.size] = given
        sequence.pending = ids
        return [row]

    def _check_room(self, ids: list[int]) -> None:
        if len(self.tokens.ids) + len(ids) > self.tokens.capacity:
            raise WinMLError(E_BOUNDS, "", f"the capacity is {self.tokens.capacity}")

    def commit(self) -> None:
        super().commit()
        self.tokens.commit()
        self.ends_with_segment = self._took_segment
        if self._took_segment:
            self.selection = None
            self.results = {}
        if self.script.runs in self.script.call_after:
            self.script.call_after[self.script.runs]()

    def discard(self) -> None:
        super().discard()
        self.tokens.pending = []


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _texts(value: object) -> list[object]:
    assert isinstance(value, list)
    return value


class FakeSequence:
    """The ids that a token model has consumed."""

    def __init__(self, script: Script, declared: int, capacity: int) -> None:
        self._script = script
        self.declared_capacity: int | None = declared
        self.capacity = capacity
        self.ids: list[int] = []
        self.pending: list[int] = []
        self._has_run = False

    @property
    def position(self) -> int:
        return len(self.ids)

    def commit(self) -> None:
        self._has_run = True
        self.ids += self.pending
        self.pending = []

    def rewind(self, position: int) -> None:
        if position > len(self.ids):
            raise WinMLError(E_INVALIDARG, "", f"position {position} is beyond {len(self.ids)}")
        del self.ids[position:]

    def set_capacity(self, capacity: int) -> None:
        if capacity == self.capacity:
            return
        self.capacity = capacity
        if self._has_run:
            self.ids.clear()

    def reset(self) -> None:
        self._script.resets += 1
        self.ids.clear()
