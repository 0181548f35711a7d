"""What a `SequenceCore` drives (genai §6.9): a feed, and the place where the sequence is kept.

Here: the interface, and the composition of one pipeline whose state owner knows its position. Not here: two pipelines
(`prefill_decode.py`), checking the parts of a configuration (`composing.py`).
"""

from __future__ import annotations

from copy import copy
from typing import Protocol

from winml_lite import ExecutionTarget, Pipeline, Runtime, Stage

from .endpoints import Endpoints
from .feed import Feed, TokenFeed
from .results import TextGenerationExecutionProfile, TextGenerationOutputKind
from .segmented_prompt import SegmentInput
from .speculation import Speculation


class Composition(Protocol):
    """Pipelines, stages and state that make tokens of tokens."""

    @property
    def profile(self) -> TextGenerationExecutionProfile:
        """How pipelines and state work together."""

    @property
    def output_kind(self) -> TextGenerationOutputKind:
        """What comes out for all tokens but the first."""

    @property
    def chooses(self) -> bool:
        """Whether a pipeline chooses the tokens itself, or some of them."""

    @property
    def keeps_sequence(self) -> bool:
        """Whether what the model has consumed can be continued after an operation."""

    @property
    def feed(self) -> Feed:
        """What runs the model."""

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """The pipelines that are in use while a session drives them."""

    @property
    def state_owner(self) -> Stage:
        """The stage that was named so; it knows its position where `keeps_sequence`."""

    @property
    def segments(self) -> SegmentInput | None:
        """Where embedding rows would go in; None where none could go through."""

    @property
    def speculation(self) -> Speculation | None:
        """How tokens are drafted; None: not at all."""

    @property
    def position(self) -> int:
        """Positions that the model has consumed."""

    @property
    def capacity(self) -> int:
        """Most tokens that prompt and output may have together; 0 = unbounded."""

    def check_prompt(self, length: int) -> None:
        """Raise 0x80070057 for a prompt of a length that cannot be evaluated."""

    def rewind(self, position: int) -> None:
        """Forget what was consumed after `position`; WinMLError where that cannot be done."""

    def reset(self) -> None:
        """Forget everything."""

    def release_threads(self) -> None:
        """Let the next run come from another thread at no cost."""

    def close(self) -> None:
        """Give up the hold on pipelines and stages."""


class SinglePipeline:
    """One pipeline for prompt and decoding; `state_owner` keeps the sequence. It closes the wrappers it is given.

    `target` is where the tensors of tokens are made.
    """

    profile = TextGenerationExecutionProfile.SINGLE_PIPELINE
    keeps_sequence = True

    def __init__(self, runtime: Runtime, endpoints: Endpoints, state_owner: Stage, target: ExecutionTarget) -> None:
        self.output_kind = endpoints.output_kind
        self.chooses = endpoints.output_kind is TextGenerationOutputKind.SAMPLED_TOKEN
        self.feed = TokenFeed(runtime, endpoints, target, state_owner)
        self.pipelines: tuple[Pipeline, ...] = (endpoints.pipeline,)
        self.state_owner = state_owner
        self.stages = (endpoints.token_stage, endpoints.output_stage, state_owner, *endpoints.others)
        """Stages whose models the sequence depends on."""
        self.steps_alone = (
            endpoints.token_stage.underlying_object is endpoints.output_stage.underlying_object
            and endpoints.token_stage.underlying_object is state_owner.underlying_object
            and endpoints.token_index == endpoints.output_index == 0
        )
        """Whether a step of the state owner is a run of the whole pipeline."""
        self._pipeline = endpoints.pipeline
        self.segments = SegmentInput.of(endpoints)
        self.speculation: Speculation | None = None
        self.endpoints = endpoints
        self._runtime = runtime
        self._target = target

    def speculate(self, speculation: Speculation) -> None:
        """Draft tokens from now on; the source of the drafts is closed with the composition."""
        self.speculation = speculation
        self.pipelines = (self._pipeline, *speculation.source.pipelines)

    def twin(self) -> SinglePipeline:
        """Return a composition of the same pipeline, with wrappers of its own."""
        return SinglePipeline(copy(self._runtime), self.endpoints.copy(), copy(self.state_owner), copy(self._target))

    @property
    def position(self) -> int:
        return self.state_owner.sequence_position

    @property
    def capacity(self) -> int:
        return self.state_owner.sequence_capacity

    def check_prompt(self, length: int) -> None:
        """Any length will do."""

    def rewind(self, position: int) -> None:
        self.state_owner.rewind(position)

    def reset(self) -> None:
        self._pipeline.reset()

    def release_threads(self) -> None:
        for pipeline in self.pipelines:
            pipeline.release_threads()

    def close(self) -> None:
        if self.speculation is not None:
            self.speculation.source.close()
        self.feed.close()
        self.state_owner.close()
        self._pipeline.close()
