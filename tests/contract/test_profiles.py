"""Compositions beside one pipeline with logits: pipelines that choose their tokens, and two pipelines (genai §6.8, 6.9).

Statements 108-110 of genai 13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes.backend import Script
from fakes.model_files import ModelFiles
from fakes.rig import failing
from fakes.scripted import EOS, A, B, C, Compose, Composed, D, saying, successor
from fakes.two_pipelines import LOGITS, PRESENT, TOKEN, TwoPipelines, tensor_of, two_pipelines
from genai import NotSupportedError, TextGenerationOptions
from genai.tasks import (
    CancellationSource,
    Tasks,
    TextGenerationDecodeInputMode,
    TextGenerationExecutionProfile,
    TextGenerationFinishReason,
    TextGenerationOutputKind,
    TextGenerationPipelinePhase,
    TextGenerationSegment,
    TextGenerationSequenceDisclosure,
    TextGenerationSession,
    TextGenerationSessionState,
    TextGenerationStream,
)
from winml_lite import Runtime, Stage, TensorDataType, WinMLError

Reason = TextGenerationFinishReason
State = TextGenerationSessionState
Disclosure = TextGenerationSequenceDisclosure
Profile = TextGenerationExecutionProfile
Phase = TextGenerationPipelinePhase
Kind = TextGenerationOutputKind
Call = Callable[[], object]

E_NOT_VALID_STATE = 0x8007139F
E_INVALIDARG = 0x80070057
NOT_SUPPORTED = 0x80070032
INSUFFICIENT_BUFFER = 0x8007007A
INVALID_DATA = 0x8007000D
E_FAIL = 0x80004005
BUSY = 0x800700AA


def options(count: int, **fields: Any) -> TextGenerationOptions:
    return TextGenerationOptions(count, **fields)


def ids(stream: TextGenerationStream) -> list[int | None]:
    return [update.token_id for update in stream]


@pytest.fixture
def two(onnx_engine: str, tmp_path: Path, files: ModelFiles, script: Script) -> Iterator[TwoPipelines]:
    """Two pipelines with the state of the caller, on the fake and on ONNX Runtime."""
    with two_pipelines(tmp_path, files, script) as two:
        yield two


@pytest.fixture
def fed_back(onnx_engine: str, tmp_path: Path, files: ModelFiles, script: Script) -> Iterator[TwoPipelines]:
    """The same, and the second pipeline feeds its token back."""
    with two_pipelines(tmp_path, files, script, feeds_back=True) as two:
        yield two


def read_moving(two: TwoPipelines, stream: TextGenerationStream) -> list[int | None]:
    """Read to the end as a caller does who moves the state after each read."""
    read = []
    while (update := stream.read_next()) is not None:
        read.append(update.token_id)
        two.move(len(read))
    return read


# --- pipelines that choose: one pipeline ------------------------------------------------------------------------------


def choosing_session(stage: Composed, *, eos: tuple[int, ...] = (), **changes: Any) -> TextGenerationSession:
    """A session over the stage with a stage behind it that chooses the likeliest token."""
    runtime, builder = stage.runtime, stage.runtime.create_pipeline_builder()
    decoder = stage.add(builder)
    choice = add_choice(runtime, builder)
    builder.connect(decoder, 0, choice, 0)
    parts = stage.parts() | {
        "pipeline": builder.build(),
        "token_input_stage": decoder,
        "state_owner_stage": decoder,
        "output_stage": choice,
        "output_kind": Kind.SAMPLED_TOKEN,
    }
    configuration = Tasks(runtime).create_text_generation_configuration().configure_unified(**(parts | changes))
    return Tasks(runtime).create_text_generation_task(stage.tokenizer, eos).create_session(configuration)


def add_choice(runtime: Runtime, builder: Any, shape: tuple[int | None, ...] = (1,), add: int = 0) -> Stage:
    """Add a stage that takes rows of logits and gives the likeliest token of the last one."""

    def choose(logits: Any) -> Any:
        token = int(np.reshape(logits, (-1, logits.shape[-1]))[-1].argmax()) + add
        return np.full([extent or 1 for extent in shape], token, np.int32)

    rank = 3 if add_choice.rank == 3 else 2
    inputs = [(TensorDataType.FLOAT32, (None,) * rank)]
    return builder.add_processor_stage(runtime.create_processor(choose, inputs, [(TensorDataType.INT32, shape)]))
