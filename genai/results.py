"""What a text generation gives back: finish reasons, updates, results, states (genai §6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from winml_lite import WinMLError

from .speculative_statistics import TextGenerationSpeculativeStatistics


class TextGenerationFinishReason(IntEnum):
    """Why a generation ended."""

    EOS_TOKEN = 0
    STOP_TOKEN = 1
    MAX_TOKENS = 2
    SEQUENCE_CAPACITY = 3
    CANCELED = 4
    ERROR = 5


class TextGenerationSessionState(IntEnum):
    """What a session can do next."""

    EMPTY = 0
    READY = 1
    ACTIVE = 2
    RESET_REQUIRED = 3
    CLOSED = 4


class TextGenerationSequenceDisclosure(IntEnum):
    """Whether the tokens that a session keeps can be continued."""

    NONE = 0
    RETAINED = 1
    UNUSABLE = 2


@dataclass(frozen=True, slots=True)
class TextGenerationSequenceState:
    """The sequence that a session keeps."""

    disclosure: TextGenerationSequenceDisclosure
    session_state: TextGenerationSessionState
    evaluated_token_count: int
    """Tokens that the model has consumed."""
    retained_token_count: int
    """Prompt and emitted tokens; one more than evaluated while the last token is pending."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely the model found an emitted token at its place: natural logarithms of probabilities.

    They are those of the model's logits after biases and penalties, before temperature and filters; under a constraint
    of the tokens that were legal.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]
    """The likeliest tokens of the place with theirs, highest first; as many as `top_logprobs` asked for."""


@dataclass(frozen=True, slots=True)
class TextGenerationUpdate:
    """One emitted token and the text that became final with it (often a word, sometimes "").

    `token_id` is None only in a last update after `stop` strings: text that was held back and turned out not to be a
    stop.
    """

    token_id: int | None
    fragment: str
    logprobs: TokenLogprob | None = None
    """How likely the token was; None without `top_logprobs`."""


@dataclass(frozen=True, slots=True)
class TextGenerationTimings:
    """Wall-clock seconds of one generation, counted inside its reads."""

    prompt_seconds: float
    """Evaluation of the prompt up to the first selected token."""
    decode_seconds: float
    """Everything after the first token."""
    evaluated_prompt_token_count: int
    """Prompt tokens that were run; the others were reused from the sequence before."""
    generated_token_count: int

    @property
    def first_token_seconds(self) -> float:
        """Time to the first token: the same as `prompt_seconds`."""
        return self.prompt_seconds

    @property
    def prompt_tokens_per_second(self) -> float:
        """Speed of the prompt; 0.0 when nothing was measured."""
        return self.evaluated_prompt_token_count / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """Speed after the first token; 0.0 when nothing was measured."""
        steps = self.generated_token_count - 1
        return steps / self.decode_seconds if self.decode_seconds and steps > 0 else 0.0


@dataclass(frozen=True, slots=True)
class TextGenerationResult:
    """The whole of a finished generation.

    `text` is the joined fragments and `token_ids` the ids of all updates; an EOS or stop token is in neither.
    `error_code` is 0 unless `finish_reason` is ERROR, where it is the failing HRESULT and `error_message` its text.
    """

    text: str
    token_ids: tuple[int, ...] = field(repr=False)
    finish_reason: TextGenerationFinishReason
    error_code: int
    prompt_token_count: int
    speculative_statistics: TextGenerationSpeculativeStatistics | None = None
    """What drafting came to; None where nothing is drafted."""
    stop_match: str | None = None
    """The stop string that ended the text."""
    seed: int = 0
    """The seed really used: a run with `seed=0` can be repeated with it."""
    timings: TextGenerationTimings = TextGenerationTimings(0.0, 0.0, 0, 0)
    error_message: str | None = None
    constraint_complete: bool | None = None
    """Whether the text is all that its constraint asks for; False where a limit cut it short, None without a
    constraint.
    """
    parse: Callable[[str], object] | None = field(default=None, repr=False, compare=False)
    """Makes the value of the text; see `parsed`."""
    logprobs: tuple[TokenLogprob, ...] | None = field(default=None, repr=False)
    """How likely each of `token_ids` was; None without `top_logprobs`."""
    stop_offset: int | None = None
    """Where the stop string begins, in characters of the text that all `token_ids` make."""

    @property
    def parsed(self) -> Any:
        """The value of a complete answer of the short road: an instance of the Pydantic model class that was the
        schema, the JSON value of another schema, the text of a regular expression, choice or grammar.

        None where there was no such constraint or the answer was cut short. What a model class refuses raises the
        class's own error.
        """
        return self.parse(self.text) if self.parse is not None and self.constraint_complete else None

    @property
    def generated_token_count(self) -> int:
        """Number of emitted tokens."""
        return len(self.token_ids)

    def raise_for_error(self) -> None:
        """Raise WinMLError when the generation ended with ERROR."""
        if self.error_code & 0x80000000:
            raise WinMLError(self.error_code, "text generation", self.error_message)


@dataclass(frozen=True, slots=True)
class TextGenerationCapabilities:
    """What a session can do; reading it changes nothing."""

    execution_profile: TextGenerationExecutionProfile
    output_kind: TextGenerationOutputKind
    supports_continuation: bool
    supports_constraints: bool
    supports_segmented_prompts: bool
    supports_embedding_segments: bool
    supports_constrained_continuation: bool
    supports_constrained_embedding_segments: bool
    sequence_state: TextGenerationSequenceState


class TextGenerationOutputKind(IntEnum):
    """What the output of a pipeline holds."""

    LOGITS = 0
    SAMPLED_TOKEN = 1


class TextGenerationPipelinePhase(IntEnum):
    """Which part of a generation a pipeline serves."""

    UNIFIED = 0
    PREFILL = 1
    DECODE = 2


class TextGenerationDecodeInputMode(IntEnum):
    """How tokens reach the pipeline that decodes."""

    CALLER_BOUND = 0
    """The session binds each one to the token input; the state is moved by the caller."""
    PIPELINE_FEEDBACK = 1
    """The first one is bound; later ones come over a next-iteration edge of the pipeline itself."""


class TextGenerationExecutionProfile(IntEnum):
    """How pipelines and state work together."""

    SINGLE_PIPELINE = 0
    PREFILL_DECODE_CALLER_BOUND = 1
    PREFILL_DECODE_PIPELINE_FEEDBACK = 2


class TextGenerationConfigurationMode(IntEnum):
    """One pipeline, or one each for prompt and decoding."""

    UNIFIED = 0
    PREFILL_DECODE = 1
