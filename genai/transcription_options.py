"""How a recording is transcribed: options, the keyword arguments of `SpeechModel.transcribe`, and their checks.

Not here: what the values do (`window_hearing.py`, `speech_windows.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from .cancellation import CancellationSource
from .checks import index_value, instance_of
from .option_values import finite, flag
from .whisper_folder import WhisperTokens

if TYPE_CHECKING:
    from .voice_activity import VoiceActivity

SpeechProgress: TypeAlias = Callable[[float, float | None], None]
"""Called with the seconds of the recording that are done, and all of them (None: unknown)."""


@dataclass(frozen=True, slots=True)
class TranscriptionOptions:
    """How speech is written down. TypeError or ValueError for values that cannot be.

    The thresholds are those of the published Whisper decoding; None switches one off.
    """

    language: str | None = None
    """Code of the language that is spoken, as in `SpeechModel.languages`; None finds out."""
    translate: bool = False
    """Write English whatever is spoken; multilingual models only."""
    timestamps: bool = True
    """Whether the model says when each piece is spoken. False: one segment for each window of up to 30 seconds."""
    prompt: str | None = None
    """Text in the style that is wanted, with names and words that will occur; the model sees it before each window."""
    condition_on_previous_text: bool = False
    """Whether the model sees what it wrote before: names stay alike, but so do mistakes."""
    temperatures: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    """Tried in order until a text is neither repetitive nor a guess; 0 takes the likeliest tokens."""
    compression_ratio_threshold: float | None = 2.4
    """A text that zlib makes smaller by more than this factor repeats itself."""
    log_probability_threshold: float | None = -1.0
    """A text of a lower average log probability is a guess."""
    no_speech_threshold: float | None = 0.6
    """A guess in a window that is no speech by more than this probability is dropped."""
    seed: int = 1
    """Of the draws at temperatures above 0; 0: a fresh one."""

    def __post_init__(self) -> None:
        for name in ("language", "prompt"):
            value = getattr(self, name)
            if value is not None:
                instance_of(value, str, name)
        for name in ("translate", "timestamps", "condition_on_previous_text"):
            flag(getattr(self, name), name)
        object.__setattr__(self, "temperatures", _temperatures(self.temperatures))
        for name in ("compression_ratio_threshold", "log_probability_threshold", "no_speech_threshold"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else finite(value, name))
        object.__setattr__(self, "seed", index_value(self.seed, "seed"))

    def check(self, tokens: WhisperTokens) -> None:
        """Raise ValueError for what a model cannot do."""
        language = self.language
        if language is None and tokens.is_multilingual:
            language = next(iter(tokens.languages))  # any: it will be found out
        tokens.prompt(language, translate=self.translate)


class TranscriptionFields(TypedDict, total=False):
    """Keyword arguments of one transcription: the fields of `TranscriptionOptions`, or one `options` record instead,
    and what the sound is, how to follow, stop and wait.
    """

    language: str | None
    translate: bool
    timestamps: bool
    prompt: str | None
    condition_on_previous_text: bool
    temperatures: float | Iterable[float]
    compression_ratio_threshold: float | None
    log_probability_threshold: float | None
    no_speech_threshold: float | None
    seed: int
    options: TranscriptionOptions | None
    sample_rate: int | None
    live: bool
    voice_activity: VoiceActivity | bool | None
    progress: SpeechProgress | None
    cancellation: CancellationSource | None
    timeout: float | None


_OTHER_FIELDS = frozenset({"options", "sample_rate", "live", "voice_activity", "progress", "cancellation", "timeout"})
_NAMES_ELSEWHERE = {
    "initial_prompt": "prompt",
    "temperature": "temperatures",
    "vad_filter": "voice_activity",
    "logprob_threshold": "log_probability_threshold",
    "condition_on_prev_tokens": "condition_on_previous_text",
}  # what other libraries call them
_NOT_HERE = {
    "word_timestamps": "times are those of segments",
    "beam_size": "decoding is greedy",
    "best_of": "decoding is greedy",
    "task": "translate=True writes English",
    "without_timestamps": "timestamps=False leaves them out",
    "clip_timestamps": "give the samples of that part",
    "vad_parameters": "voice_activity=True cuts out silences of more than two seconds",
    "hotwords": "prompt takes names and words that will occur",
    "verbose": "stream() yields the segments as they are heard",
    "fp16": "the weights of the model folder decide",
}  # what other libraries have


def transcription_options(given: TranscriptionFields) -> TranscriptionOptions:
    """Return the options among keyword arguments. TypeError for unknown names, and for options given twice."""
    names = [field.name for field in fields(TranscriptionOptions)]
    values: dict[str, Any] = {name: value for name, value in given.items() if name not in _OTHER_FIELDS}
    for name in values:
        if name not in names:
            near = _NAMES_ELSEWHERE.get(name) or next(iter(get_close_matches(name, [*names, *_OTHER_FIELDS], 1)), None)
            hint = f"; did you mean {near!r}?" if near else ""
            if name in _NOT_HERE:
                hint = f": {_NOT_HERE[name]}"
            raise TypeError(f"transcribe has no option {name!r}{hint}")
    whole = given.get("options")
    if whole is None:
        return TranscriptionOptions(**values)
    if values:
        raise TypeError(f"give options as a record or one by one, not both: {', '.join(values)}")
    return instance_of(whole, TranscriptionOptions, "options")


def _temperatures(value: Any) -> tuple[float, ...]:
    given = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    found = tuple(finite(item, "a temperature") for item in given)
    if not found or min(found) < 0:
        raise ValueError(f"temperatures must be one or more numbers of at least 0, not {value!r}")
    return found
