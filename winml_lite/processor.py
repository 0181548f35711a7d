"""`Processor` (tensors §8, runtime §15.1): work on tensors that is done on the host, alone or as a stage of a pipeline.

Not here: the kinds of processors (`decode_processors.py`, `function_processor.py`), how a stage runs one
(`processor_stage.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NoReturn

from .checks import index_value
from .errors import E_BOUNDS, E_INVALIDARG, E_NOINTERFACE, NOT_SUPPORTED, NotSupportedError, WinMLError, recast
from .files.artifact import Artifact
from .handles import Closeable
from .native.backend import Placement, StageOptions
from .processor_stage import Journal, ProcessorExecutor, ProcessorWork
from .storage import Storage, StorageLock
from .target import ExecutionTarget, RuntimeCore, TargetCore, tensor_target
from .tensor import Tensor, bindable
from .values import Descriptor, ExecutionTargetKind, TensorLockMode

_EXECUTE = "IWinMLProcessor.Execute"


@dataclass(frozen=True, slots=True, eq=False)
class ProcessorCore:
    """A kind of work with its tensors, and where it belongs; implements `StageSource`."""

    runtime: RuntimeCore = field(repr=False)
    target: TargetCore
    work: ProcessorWork

    @property
    def artifact(self) -> Artifact | None:
        return None

    @property
    def runner(self) -> str:
        return "the host"

    @property
    def kept(self) -> tuple[Storage, ...]:
        return self.work.kept

    def ports(self, side: str) -> tuple[Descriptor, ...]:
        """Return the `"inputs"` or `"outputs"`."""
        return self.work.inputs if side == "inputs" else self.work.outputs

    def accepts(self, index: int, given: Descriptor, wanted: Descriptor) -> bool:
        """Return whether an output `given` may feed the input `wanted`."""
        return self.work.accepts(given, wanted)

    def make_executor(self, placement: Placement, options: StageOptions) -> ProcessorExecutor:
        """Make the executor of one stage; any target but a CPU is 0x80070032."""
        if placement.provider is not None or placement.kind not in (None, ExecutionTargetKind.CPU):
            raise WinMLError(
                NOT_SUPPORTED, "placing a processor", "processors run on the host: give no target, or a CPU target"
            )
        return ProcessorExecutor(self.work, options.debug_name)


class RecordedProcessorOutputs(list[Tensor]):
    """Outputs of recorded work, with what must stay alive until a device has done it.

    Only Windows records work for a device; elsewhere `Processor.record_commands` refuses and none of these is made.
    """

    def __init__(self, tensors: Iterable[Tensor] = (), recording: object = None) -> None:
        super().__init__(tensors)
        self._recording = recording

    def release_recording(self) -> None:
        """Drop what the recorded commands needed; the tensors stay. Again: nothing happens."""
        self._recording = None

    def close(self) -> None:
        """Drop the recording, close the tensors and empty the list. Closing twice is fine."""
        self.release_recording()
        for tensor in self:
            tensor.close()
        self.clear()


class Processor(Closeable[ProcessorCore]):
    """Work on tensors with a fixed list of inputs and outputs: run it with `execute`, or as a stage.

    Made by the `create_*_processor` methods of `Runtime`. It keeps the tensors it was made with; closing it disturbs
    neither them nor a stage it was added as.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        core = self._open
        if core is None:
            return "<Processor (closed)>"
        return f"<Processor {core.work.name}: {len(core.work.inputs)} inputs, {len(core.work.outputs)} outputs>"

    @property
    def input_count(self) -> int:
        """Number of inputs."""
        return len(self._core.work.inputs)

    @property
    def output_count(self) -> int:
        """Number of outputs."""
        return len(self._core.work.outputs)

    def input_desc(self, index: int) -> Descriptor:
        """Return `(element type, shape)` of an input; past the end is 0x8000000B."""
        return _port(self._core.work.inputs, index, "GetInputDesc")

    def output_desc(self, index: int) -> Descriptor:
        """Return `(element type, shape)` of an output; past the end is 0x8000000B."""
        return _port(self._core.work.outputs, index, "GetOutputDesc")

    def inputs(self) -> list[Descriptor]:
        """Return the descriptors of all inputs."""
        return list(self._core.work.inputs)

    def outputs(self) -> list[Descriptor]:
        """Return the descriptors of all outputs."""
        return list(self._core.work.outputs)

    def execute(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Do the work once, on this thread, and return the outputs.

        The outputs of the three decode processors are the tensors they were made with: the next `execute` changes what
        they show. A failure (0x8000000B where a token or a position is out of range) leaves those tensors as they were.
        An input of another type or size is 0x80070057, a locked tensor 0x800700D4.
        """
        core = self._core
        storages = _operands(inputs, core.work)
        try:
            outputs = _execute(core.work, storages)
        except WinMLError as error:
            if error.is_final:
                raise
            raise recast(error, _EXECUTE) from error.__cause__
        return [Tensor(storage, core.runtime, core.target) for storage in outputs]

    def record_commands(self, command_list: Any, inputs: Sequence[Tensor]) -> NoReturn:
        """Record the work into a list of Direct3D 12 commands: Windows only, here NotSupportedError 0x80004002."""
        core = self._core
        if command_list is None:
            raise ValueError("command_list must not be None")
        _operands(inputs, core.work)
        raise NotSupportedError(
            E_NOINTERFACE, "IWinMLProcessor.RecordCommands", "this processor runs on the host: use execute()"
        )


def processor_target(target: ExecutionTarget | None, runtime: RuntimeCore, default: TargetCore | None) -> TargetCore:
    """Return the target that a processor shall keep: the given one, else `default`, else the Runtime's CPU target."""
    context = "IWinMLRuntime.CreateProcessor"
    found = default if target is None and default is not None else tensor_target(target, runtime)
    if found.runtime is not runtime:
        raise WinMLError(E_INVALIDARG, context, "the target belongs to another Runtime")
    if found.kind is not ExecutionTargetKind.CPU:
        raise WinMLError(
            NOT_SUPPORTED, context, f"processors run on the host, not on a {found.kind.name}: use create_cpu_target()"
        )
    return found


def _port(ports: tuple[Descriptor, ...], index: int, member: str) -> Descriptor:
    position = index_value(index, "index")
    if position >= len(ports):
        raise WinMLError(E_BOUNDS, f"IWinMLProcessor.{member}", f"index {position} of {len(ports)}")
    return ports[position]


def _operands(inputs: Sequence[Tensor], work: ProcessorWork) -> list[Storage]:
    """Return the storages of the inputs of one call."""
    if not isinstance(inputs, Sequence):
        raise TypeError(f"inputs must be a sequence of tensors, not {type(inputs).__name__}")
    storages = [bindable(tensor) for tensor in inputs]
    if len(storages) != len(work.inputs):
        raise ValueError(f"{work.name} takes {len(work.inputs)} inputs, not {len(storages)}")
    return storages


def _execute(work: ProcessorWork, inputs: Sequence[Storage]) -> Sequence[Storage]:
    for index, storage in enumerate(inputs):
        work.check_input(index, storage, f"input {index}")
    kept = tuple(dict.fromkeys(work.kept))
    journal = Journal()
    with ExitStack() as locks:
        for storage in inputs:
            locks.enter_context(StorageLock(storage, TensorLockMode.READ))
        for storage in kept:
            locks.enter_context(StorageLock(storage, TensorLockMode.READ_WRITE))
        for storage in (*inputs, *kept):
            storage.fetch()
        try:
            outputs = work.perform(inputs, [None] * len(work.outputs), journal)
        except BaseException:
            journal.take_back()
            raise
        for storage in kept:
            storage.publish()
    return outputs
