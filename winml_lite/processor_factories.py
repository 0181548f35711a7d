"""The methods of `Runtime` that make processors (runtime §2 and 15.1, tensors §8.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .checks import flag_value, number_value
from .decode_processors import DecodeEmbed, DecodeGreedy, DecodeSample, logits_descriptor
from .function_processor import FunctionWork, PortDeclaration
from .handles import Closeable
from .processor import Processor, ProcessorCore, processor_target
from .processor_stage import ProcessorWork
from .storage import Storage
from .target import ExecutionTarget, RuntimeCore
from .tensor import Tensor, bindable


class ProcessorFactories(Closeable[RuntimeCore]):
    """What `Runtime` has for processors."""

    __slots__ = ()

    def create_decode_embed_processor(
        self,
        vocabulary_size: int,
        hidden_size: int,
        sequence_capacity: int,
        hidden_output: Tensor,
        *,
        target: ExecutionTarget | None = None,
    ) -> Processor:
        """Make the processor that looks up the embedding of one token.

        Inputs: 0 the ring of token ids, INT32 [sequence_capacity]; 1 the position in it, INT32 [1]; 2 the embedding
        table [vocabulary_size, hidden_size] of the type of `hidden_output`, FLOAT32 or FLOAT16. Output 0 is
        `hidden_output`, of hidden_size elements, which gets the row of the token at the position. Position or token
        out of range is 0x8000000B.
        """
        core = self._core
        vocabulary = number_value(vocabulary_size, "vocabulary_size", minimum=1)
        hidden = number_value(hidden_size, "hidden_size", minimum=1)
        capacity = number_value(sequence_capacity, "sequence_capacity", minimum=1)
        (storage,) = _storages(hidden_output=hidden_output)
        return _processor(core, target, hidden_output, DecodeEmbed(vocabulary, hidden, capacity, storage))

    def create_decode_sample_processor(
        self,
        vocabulary_size: int,
        logits_are_float32: bool,
        token_ring: Tensor,
        position: Tensor,
        sequence_length: Tensor,
        observed_token: Tensor,
        *,
        target: ExecutionTarget | None = None,
    ) -> Processor:
        """Make the processor that appends the most likely token to a ring: greedy, in spite of its name.

        Input 0: logits [1, vocabulary_size], FLOAT32 or else FLOAT16. Outputs, which are the given tensors: 0
        `observed_token` INT32, the chosen token; 1 `token_ring` INT32, which gets it at position + 1; 2 `position`, one
        more; 3 `sequence_length`, position + 1 of the new position. The last two are INT32 or INT64; all but the ring
        have one element. A full ring is 0x8000000B and changes nothing.
        """
        core = self._core
        vocabulary = number_value(vocabulary_size, "vocabulary_size", minimum=1)
        is_float32 = flag_value(logits_are_float32, "logits_are_float32")
        storages = _storages(
            token_ring=token_ring, position=position, sequence_length=sequence_length, observed_token=observed_token
        )
        work = DecodeSample(logits_descriptor(vocabulary, is_float32), *storages)
        return _processor(core, target, token_ring, work)

    def create_decode_greedy_processor(
        self,
        vocabulary_size: int,
        logits_are_float32: bool,
        next_token: Tensor,
        position: Tensor,
        step_state: Tensor,
        observed_token: Tensor,
        *,
        target: ExecutionTarget | None = None,
    ) -> Processor:
        """Make the processor that stores the most likely token as the next one.

        Input 0: logits [1, vocabulary_size], FLOAT32 or else FLOAT16. Outputs, which are the given tensors: 0
        `observed_token` INT32 and 1 `next_token`, the chosen token; 2 `position`, one more; 3 `step_state`: the length
        of the sequence (INT32 or INT64, one element), or an additive mask (FLOAT32, or FLOAT16 of an even number of
        elements) that gets 0 at the new position. `next_token` and `position` are INT32 or INT64, of one element. A
        position without successor or outside the mask is 0x8000000B and changes nothing.
        """
        core = self._core
        vocabulary = number_value(vocabulary_size, "vocabulary_size", minimum=1)
        is_float32 = flag_value(logits_are_float32, "logits_are_float32")
        storages = _storages(
            next_token=next_token, position=position, step_state=step_state, observed_token=observed_token
        )
        work = DecodeGreedy(logits_descriptor(vocabulary, is_float32), *storages)
        return _processor(core, target, next_token, work)

    def create_processor(
        self,
        function: Callable[..., Any],
        inputs: Iterable[PortDeclaration],
        outputs: Iterable[PortDeclaration],
        *,
        target: ExecutionTarget | None = None,
    ) -> Processor:
        """Make a processor of a Python function, to be a stage like any other (an extension).

        `inputs` and `outputs` declare the ports as (element type, shape); an extent of None is free. The function gets
        one read-only NumPy view an input and returns one array, or a tuple or list of one array an output (nothing, if
        there is none). What it returns is copied, and must have the declared type and extents: else 0x8000FFFF, and
        nothing is cast. A type that NumPy lacks is a row of bytes both ways. An exception of the function reaches the
        caller of `run` unchanged, and the run counts as failed. The function runs on the thread that runs the
        pipeline; calling its own pipeline is 0x800700AA.
        """
        core = self._core
        work = FunctionWork(function, inputs, outputs)
        return Processor(ProcessorCore(core, processor_target(target, core, None), work))


def _storages(**tensors: Tensor) -> list[Storage]:
    """Return the storages of tensor arguments, which the names are for."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a Tensor, not {type(tensor).__name__}")
    return [bindable(tensor) for tensor in tensors.values()]


def _processor(core: RuntimeCore, target: ExecutionTarget | None, first: Tensor, work: ProcessorWork) -> Processor:
    """Wrap the work; the target is by default that of the first tensor."""
    return Processor(ProcessorCore(core, processor_target(target, core, first._target), work))
