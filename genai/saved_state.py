"""Sequences as files (genai §8): what the model keeps of the tokens, and the tokens themselves.

A file belongs to its weights: it is refused by any other model. Not here: how a stage's state becomes a file, which is
`Stage.save_sequence_state`.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from winml_lite import NotSupportedError, WinMLError

from .codes import E_NOT_VALID_STATE, INSUFFICIENT_BUFFER, INVALID_DATA, NOT_SUPPORTED
from .composition import SinglePipeline
from .results import TextGenerationSessionState
from .sequence import SequenceCore

Path = str | os.PathLike[str]
State = TextGenerationSessionState

_FORMAT = "genai sequence 1"


def save_sequence(core: SequenceCore, path: Path) -> None:
    """Write the retained sequence into a file, a pending last token included.

    0x8007139F while an operation is open and where nothing is retained, NotSupportedError 0x80070032 for a composition
    whose state is the caller's.
    """
    composition = _composition(core, "save_state")
    if core.state is State.READY and core.segmented is not None:
        raise NotSupportedError(
            NOT_SUPPORTED,
            "save_state",
            "the sequence has pictures, sound or other embedding rows in it, which a file does not keep",
        )
    if core.state is not State.READY or core.is_unusable:
        raise WinMLError(
            E_NOT_VALID_STATE, "save_state", f"the session is {core.state.name} and retains no sequence to save"
        )
    if composition.position != core.evaluated:
        raise WinMLError(
            E_NOT_VALID_STATE,
            "save_state",
            f"the stage is at position {composition.position} instead of {core.evaluated}: somebody else moved it",
        )
    about = {"format": _FORMAT, "models": _models(composition), "evaluated": core.evaluated}
    note = json.dumps(about).encode() + b"\n" + np.array(core.retained, "<i4").tobytes()
    composition.state_owner.save_sequence_state(path, note)


def load_sequence(core: SequenceCore, path: Path) -> None:
    """Replace the sequence by a saved one: the core is then READY, and goes on as the saved one would have.

    A refusal changes nothing: 0x8007139F while an operation is open or a reset is due, 0x8007000D for the file of other
    models, 0x80070570 for a damaged one, 0x8007007A for a sequence that is longer than the capacity.
    """
    composition = _composition(core, "load_state")
    if core.state not in (State.EMPTY, State.READY):
        mend = "call reset() first" if core.state is State.RESET_REQUIRED else "end its generation first"
        raise WinMLError(E_NOT_VALID_STATE, "load_state", f"the session is {core.state.name}: {mend}")
    before = composition.position
    try:
        note = composition.state_owner.load_sequence_state(path, lambda note: _check(core, composition, note))
    except BaseException:
        if composition.position != before:
            core.reset()  # the engine failed in the middle
        raise
    saved = _saved(note)
    core.segmented = None
    core.retained = saved.token_ids
    core.evaluated = saved.evaluated
    core.state = State.READY


def _composition(core: SequenceCore, what: str) -> SinglePipeline:
    composition = core.composition
    if not isinstance(composition, SinglePipeline):
        raise NotSupportedError(NOT_SUPPORTED, what, "the state of two pipelines is the caller's to save")
    return composition


def _models(composition: SinglePipeline) -> list[str]:
    """Digests of the models of all stages; stages that run a processor have none."""
    digests: list[str] = []
    for stage in composition.stages:
        with suppress(NotSupportedError):
            digests.append(stage.model_digest)
    return digests


@dataclass(frozen=True, slots=True)
class _Saved:
    """What the note of a file says."""

    models: list[str]
    evaluated: int
    token_ids: list[int]


def _saved(note: bytes) -> _Saved:
    head, _, tokens = note.partition(b"\n")
    try:
        about = json.loads(head)
        if about["format"] != _FORMAT:
            raise ValueError(about["format"])
        return _Saved(about["models"], about["evaluated"], np.frombuffer(tokens, "<i4").tolist())
    except (ValueError, KeyError, TypeError) as error:
        text = f"the file holds the state of a stage, but no sequence of tokens ({error})"
        raise WinMLError(INVALID_DATA, "load_state", text) from None


def _check(core: SequenceCore, composition: SinglePipeline, note: bytes) -> None:
    saved = _saved(note)
    if saved.models != _models(composition):
        raise WinMLError(INVALID_DATA, "load_state", "the sequence was saved with another model in the pipeline")
    if core.capacity and len(saved.token_ids) > core.capacity:
        text = f"{len(saved.token_ids)} tokens do not fit into the context of {core.capacity}"
        raise WinMLError(INSUFFICIENT_BUFFER, "load_state", f"{text}; load with a larger context_length")
    size = core.feed.vocabulary_size or core.tokenizer.token_count
    fits = 0 < saved.evaluated <= len(saved.token_ids) and 0 <= min(saved.token_ids) <= max(saved.token_ids) < size
    if not fits:
        raise WinMLError(INVALID_DATA, "load_state", "the tokens of the sequence do not fit the model")
