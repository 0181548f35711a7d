"""The stateful members of a stage (runtime §9 and 20): options before `build`, position and capacity after it.

The state itself lives in the executor: the cache of a llama.cpp context, or the state pairs of an ONNX Runtime session.
"""

from __future__ import annotations

from .checks import UINT64_MAX, flag_value, index_value
from .errors import E_INVALIDARG, NOT_SUPPORTED, NotSupportedError, WinMLError
from .handles import Closeable
from .native.backend import Sequence
from .stage_core import StageCore


class SequenceMembers(Closeable[StageCore]):
    """Options and operations of a stage that keeps state between runs.

    Options are refused after `build` (0x8007139F).
    """

    __slots__ = ()

    @property
    def sequence_capacity_hint(self) -> int:
        """Requested capacity in positions; 0 when there is no hint."""
        return self._core.options.capacity_hint

    def set_sequence_capacity_hint(self, capacity: int) -> None:
        """Ask for room for `capacity` positions (for llama.cpp the context length). Ignored where it cannot be used."""
        core = self._core
        value = index_value(capacity, "capacity", minimum=1)
        core.check_open_for_options("IWinMLStage.SetSequenceCapacityHint")
        core.options.capacity_hint = value

    def clear_sequence_capacity_hint(self) -> None:
        """Withdraw the hint."""
        core = self._core
        core.check_open_for_options("IWinMLStage.ClearSequenceCapacityHint")
        core.options.capacity_hint = 0

    @property
    def caller_owns_state_tensors(self) -> bool:
        """Whether the caller binds the state pairs to tensors of his own.

        Default False: the runtime keeps the state.
        """
        return self._core.options.caller_owns_state

    @caller_owns_state_tensors.setter
    def caller_owns_state_tensors(self, value: bool) -> None:
        core = self._core
        flag = flag_value(value, "caller_owns_state_tensors")
        core.check_open_for_options("IWinMLStage.CallerOwnsStateTensors")
        core.options.caller_owns_state = flag

    @property
    def state_tensor_pairs(self) -> tuple[tuple[int, int], ...]:
        """Declared (input, output) pairs, in the order of declaration."""
        return tuple(self._core.options.state_pairs)

    def add_state_tensor_pair(self, input_index: int, output_index: int) -> None:
        """Declare that output `output_index` of a run is the state that the next run takes as input `input_index`.

        A member that is in a pair already is 0x80070057.
        """
        core = self._core
        pair = index_value(input_index, "input_index"), index_value(output_index, "output_index")
        context = "IWinMLStage.AddStateTensorPair"
        core.check_open_for_options(context)
        pairs = core.options.state_pairs
        if any(pair[0] == used[0] or pair[1] == used[1] for used in pairs):
            raise WinMLError(E_INVALIDARG, context, f"a member of {pair} is in a pair already: {pairs}")
        pairs.append(pair)

    def clear_state_tensor_pairs(self) -> None:
        """Withdraw all pairs."""
        core = self._core
        core.check_open_for_options("IWinMLStage.ClearStateTensorPairs")
        core.options.state_pairs.clear()

    @property
    def sequence_position(self) -> int:
        """Positions consumed by successful runs. NotSupportedError 0x80070032 on a stage without state of its own."""
        return _sequence(self._core, "IWinMLStage.SequencePosition").position

    @property
    def sequence_capacity(self) -> int:
        """Positions the stage has room for; 0 when unbounded."""
        return _sequence(self._core, "IWinMLStage.SequenceCapacity").capacity

    @property
    def declared_sequence_capacity(self) -> int | None:
        """What the model file declares, or None."""
        return _sequence(self._core, "IWinMLStage.DeclaredSequenceCapacity").declared_capacity

    def rewind(self, position: int) -> None:
        """Forget everything after `position`; bindings and outputs stay. Beyond the present position is 0x80070057."""
        core = self._core
        value = index_value(position, "position", UINT64_MAX)

        def rewind(sequence: Sequence) -> None:
            sequence.rewind(value)
            core.pending_step = None

        context = "IWinMLStage.RewindTo"
        core.gate.hold_optional(context, rewind, _sequence(core, context))

    def set_sequence_capacity(self, capacity: int) -> None:
        """Change the room for positions. After the first run this drops the state (position 0)."""
        value = index_value(capacity, "capacity", minimum=1)
        core = self._core
        context = "IWinMLStage.SetSequenceCapacity"
        core.gate.hold_optional(context, _sequence(core, context).set_capacity, value)


def _sequence(core: StageCore, context: str) -> Sequence:
    sequence = core.built(context).sequence
    if sequence is None:
        raise NotSupportedError(
            NOT_SUPPORTED, context, f"{core.debug_name} keeps no state: declare its state with add_state_tensor_pair"
        )
    return sequence


def check_state_options(core: StageCore) -> None:
    """Refuse at `build` what the declared state and the model cannot have together."""
    context = "IWinMLPipelineBuilder.Build"
    options = core.options
    if not core.is_onnx:
        if options.state_pairs or options.caller_owns_state:
            why = "llama.cpp keeps the state" if core.is_llama else "a processor has no state pairs"
            raise WinMLError(NOT_SUPPORTED, context, f"{core.debug_name}: {why}; declare no pairs")
        return
    for source, output in options.state_pairs:
        core.check_index("inputs", source, context)
        core.check_index("outputs", output, context)
        past, present = core.declared("inputs", source), core.declared("outputs", output)
        if past[0] is not present[0] or len(past[1]) != len(present[1]):
            raise WinMLError(
                E_INVALIDARG, context, f"{core.debug_name}: input {source} {past} and output {output} {present} differ"
            )
        if not options.caller_owns_state and (source in core.inputs or source in core.fed_inputs | core.seed_inputs):
            raise WinMLError(E_INVALIDARG, context, f"{core.debug_name}: state input {source} must not be bound")
