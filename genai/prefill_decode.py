"""Two pipelines, one for the prompt and one for each token after it (genai §6.9).

The state is the caller's: he moves it from one pipeline to the other between reads. So each read runs one pipeline
once, and nothing of a sequence is kept for a later one. In a pipeline that feeds its token back, the first token is
bound once, and later ones come over the graph's own edge.
"""

from __future__ import annotations

from collections.abc import Sequence

from winml_lite import ExecutionTarget, Pipeline, Runtime, Stage, Tensor, WinMLError

from .codes import E_INVALIDARG, NOT_SUPPORTED
from .endpoints import Endpoints, Row, RowOutput, TensorMaker, TokenInput
from .feed import UNLIMITED
from .results import TextGenerationExecutionProfile, TextGenerationOutputKind
from .segmented_prompt import SegmentInput
from .speculation import Speculation

Binding = tuple[Stage, int, Tensor]
"""Stage and output that goes to a tensor of the caller."""


class _Phase:
    """One of the two pipelines: its token input, and the output as the caller or the session has bound it."""

    def __init__(self, tensors: TensorMaker, endpoints: Endpoints, bindings: Sequence[Binding]) -> None:
        stage = endpoints.output_stage
        self.endpoints = endpoints
        self.tokens = TokenInput(tensors, endpoints.token_stage, endpoints.token_index)
        self.output = RowOutput(tensors, stage, endpoints.output_index, endpoints.output_kind)
        self._is_caller_bound = any(
            stage.underlying_object is other.underlying_object and endpoints.output_index == index
            for other, index, _ in bindings
        )

    def begin(self) -> None:
        """Have the output made, unless it goes to a tensor of the caller."""
        if not self._is_caller_bound:
            self.output.request()

    def close(self) -> None:
        """Close the wrappers."""
        for part in (self.endpoints.token_stage, self.endpoints.output_stage, self.endpoints.pipeline):
            part.close()


class PrefillDecodeFeed:
    """Runs the first pipeline on a whole prompt and the second one on each token after it.

    It binds the token inputs and the outputs that `bindings` name; all other inputs are the caller's. `position` counts
    the tokens of the runs since `reset`. It closes the wrappers it is given.
    """

    chunk = UNLIMITED

    def __init__(
        self,
        runtime: Runtime,
        phases: tuple[Endpoints, Endpoints],
        target: ExecutionTarget,
        bindings: Sequence[Binding],
        is_fed_back: bool,
    ) -> None:
        tensors = TensorMaker(runtime, target)
        self._prefill, self._decode = (_Phase(tensors, endpoints, bindings) for endpoints in phases)
        self._bindings = tuple(bindings)
        self._is_fed_back = is_fed_back
        if self._decode.tokens.fixed_length not in (None, 1):
            raise WinMLError(E_INVALIDARG, "DECODE: token input", "it must take one token, or any number")
        self.position = 0
        self._last: _Phase = self._prefill
        self._repeats = self._is_decoding = False

    @property
    def vocabulary_sizes(self) -> tuple[int, int]:
        """Length of a row of each pipeline; 0 where it is not known or no row is one."""
        return self._prefill.output.vocabulary_size, self._decode.output.vocabulary_size

    @property
    def vocabulary_size(self) -> int:
        """Length of a row of logits; 0 where it is not known, or where tokens come out."""
        return max(self.vocabulary_sizes)

    @property
    def kinds(self) -> tuple[TextGenerationOutputKind, TextGenerationOutputKind]:
        """What comes out of the two pipelines."""
        return self._prefill.endpoints.output_kind, self._decode.endpoints.output_kind

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """The pipelines; one where it serves for both."""
        both = (self._prefill.endpoints.pipeline, self._decode.endpoints.pipeline)
        return both if both[0].underlying_object is not both[1].underlying_object else both[:1]

    @property
    def is_fed_back(self) -> bool:
        """Whether the second pipeline feeds its token back itself."""
        return self._is_fed_back

    @property
    def prompt_length(self) -> int | None:
        """The length that the first pipeline was built for; None where it takes any."""
        return self._prefill.tokens.fixed_length

    def prepare(self) -> None:
        """Bind the outputs that go to tensors of the caller. From then on they are his: he may bind others."""
        for stage, index, tensor in self._bindings:
            stage.bind_output(index, tensor)

    def begin(self) -> None:
        """Begin an operation."""
        self._prefill.begin()
        self._decode.begin()
        self._is_decoding = False

    def reset(self) -> None:
        """Reset the execution state of both pipelines. Tensors of the caller keep what is in them."""
        self.position = 0
        self._repeats = self._is_decoding = False
        for pipeline in self.pipelines:
            pipeline.reset()

    def repeat(self) -> None:
        """Let the next step return the row of the last run again: an interrupt has come before its use."""
        self.position -= 1
        self._repeats = True

    def step(self, token_id: int, position: int) -> Row:
        """Evaluate one token: the second pipeline does, unless it is the whole prompt."""
        if self._repeats:
            self._repeats = False
            self.position = position + 1
            return self._last.output.read()
        if position == 0:
            return self.run([token_id], 0)
        if not self._is_decoding or not self._is_fed_back:
            self._decode.tokens.single.flat[0] = token_id
        if not self._is_decoding:
            self._decode.tokens.bind_single()
            self._is_decoding = True
        return self._run(self._decode, position + 1)

    def run(self, ids: list[int], position: int) -> Row:
        """Evaluate the whole prompt."""
        if position:
            raise WinMLError(NOT_SUPPORTED, "prefill", "the pipeline of the prompt takes all of it in one run")
        self._prefill.tokens.bind(ids)
        return self._run(self._prefill, len(ids))

    def skip(self, ids: list[int], position: int) -> None:
        """Not possible: a prompt is never in pieces here."""
        raise WinMLError(NOT_SUPPORTED, "prefill", "the pipeline of the prompt takes all of it in one run")

    def bind_positions(self, position: int, count: int) -> None:
        """Nothing: all inputs but the tokens are the caller's."""

    def abort(self) -> None:
        """Ask a run on another thread to stop early; it then fails with 0x800704C7."""
        for pipeline in self.pipelines:
            pipeline.cancel_run()

    def close(self) -> None:
        """Give up the hold on the pipelines."""
        self._bindings = ()
        self._prefill.close()
        self._decode.close()

    def _run(self, phase: _Phase, position: int) -> Row:
        pipeline = phase.endpoints.pipeline
        before = pipeline.run_count
        try:
            pipeline.run()
        finally:  # an interrupt may come out of a run that has succeeded
            if pipeline.run_count != before:
                self.position = position
                self._last = phase
        return phase.output.read()


class PrefillDecode:
    """The composition of two pipelines: the caller keeps the state, and `capacity` is what he says it is."""

    keeps_sequence = False
    segments: SegmentInput | None = None
    speculation: Speculation | None = None

    def __init__(self, feed: PrefillDecodeFeed, state_owner: Stage, capacity: int) -> None:
        profiles = TextGenerationExecutionProfile
        self.profile = (
            profiles.PREFILL_DECODE_PIPELINE_FEEDBACK if feed.is_fed_back else profiles.PREFILL_DECODE_CALLER_BOUND
        )
        self.output_kind = feed.kinds[1]
        self.chooses = TextGenerationOutputKind.SAMPLED_TOKEN in feed.kinds
        self.feed = feed
        self.pipelines = feed.pipelines
        self.state_owner = state_owner
        self.capacity = capacity

    @property
    def position(self) -> int:
        return self.feed.position

    def check_prompt(self, length: int) -> None:
        built = self.feed.prompt_length
        if built not in (None, length):
            raise WinMLError(
                E_INVALIDARG, "generate", f"the prefill pipeline was built for {built} tokens, the prompt has {length}"
            )

    def rewind(self, position: int) -> None:
        """Go back by the last run only: what its row says is still known."""
        if position != self.feed.position - 1:
            raise WinMLError(NOT_SUPPORTED, "rewind", "the state of two pipelines is the caller's")
        self.feed.repeat()

    def reset(self) -> None:
        self.feed.reset()

    def release_threads(self) -> None:
        for pipeline in self.pipelines:
            pipeline.release_threads()

    def close(self) -> None:
        self.feed.close()
        self.state_owner.close()
