"""A tiny speech recognizer of the long road: tones in, words out (`models/whisper_models.py`).

`Recognizer` is everything that a program builds before it has a session; tests make one on each engine that runs ONNX
graphs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from genai import Tokenizer
from genai.tasks import (
    AutomaticSpeechRecognitionConfiguration,
    AutomaticSpeechRecognitionSession,
    AutomaticSpeechRecognitionStream,
    AutomaticSpeechRecognitionTask,
    AutomaticSpeechRecognitionWaveformMetadata,
    Tasks,
)
from genai.whisper_stages import declare_whisper_state
from models.whisper_models import tiny_whisper, tones
from winml_lite import ExecutionTarget, Pipeline, Runtime, Stage, Tensor

Metadata = AutomaticSpeechRecognitionWaveformMetadata


@dataclass
class Recognizer:
    """Two built stages, a tokenizer and a task."""

    folder: Path
    """The model."""
    runtime: Runtime
    target: ExecutionTarget
    encoder: tuple[Pipeline, Stage]
    decoder: tuple[Pipeline, Stage]
    tasks: Tasks
    tokenizer: Tokenizer
    task: AutomaticSpeechRecognitionTask

    def parts(self, **others: Any) -> dict[str, Any]:
        """What `configure_whisper` takes."""
        return {
            "encoder_pipeline": self.encoder[0],
            "encoder_stage": self.encoder[1],
            "decoder_pipeline": self.decoder[0],
            "decoder_stage": self.decoder[1],
            "tensor_target": self.target,
            **others,
        }

    def configuration(self, **others: Any) -> AutomaticSpeechRecognitionConfiguration:
        """A complete configuration."""
        return self.task.create_configuration().configure_whisper(**self.parts(**others))

    def session(self, **others: Any) -> AutomaticSpeechRecognitionSession:
        """A session of its own."""
        return self.task.create_session(self.configuration(**others))

    def sound(self, *words: int | None) -> tuple[Tensor, Metadata]:
        """A second of sound for each word."""
        return self.waveform(tones(words))

    def waveform(self, samples: npt.NDArray[np.generic], **metadata: Any) -> tuple[Tensor, Metadata]:
        """A tensor of samples, and what it holds unless `metadata` says something else."""
        fields = {"sample_rate": 16000, "valid_sample_count": samples.shape[-1], **metadata}
        return self.runtime.tensor_from_numpy(samples), Metadata(**fields)

    def stage(self, name: str, capacity: int = 0) -> tuple[Pipeline, Stage]:
        """Another encoder or decoder in a pipeline of its own."""
        return built(self.runtime, self.target, self.folder / f"{name}.onnx", capacity)


def built(runtime: Runtime, target: ExecutionTarget, path: Path, capacity: int = 0) -> tuple[Pipeline, Stage]:
    """Build a stage; a decoder keeps its state, with room for `capacity` tokens."""
    with runtime.load_model(path) as model:
        builder = runtime.create_pipeline_builder()
        stage = builder.add_model_stage(model, target, path.stem)
        declare_whisper_state(model, stage)
        if capacity:
            stage.set_sequence_capacity_hint(capacity)
        return builder.build(), stage


@contextmanager
def recognizing(folder: Path, *, multilingual: bool = False, mel_count: int = 80) -> Iterator[Recognizer]:
    """Build the tiny model and what belongs to it; models are kept in `folder`."""
    model = tiny_whisper(folder / f"whisper-{multilingual}-{mel_count}", multilingual=multilingual, mel_count=mel_count)
    with recognizer_of(model) as recognizer:
        yield recognizer


@contextmanager
def recognizer_of(model: Path) -> Iterator[Recognizer]:
    """Build a model folder and what belongs to it."""
    with ExitStack() as stack:
        runtime = stack.enter_context(Runtime())
        target = stack.enter_context(runtime.create_cpu_target())
        encoder = built(runtime, target, model / "encoder.onnx")
        decoder = built(runtime, target, model / "decoder.onnx")
        tokenizer = stack.enter_context(Tokenizer.from_file(model / "tokenizer.json"))
        tasks = Tasks(runtime)
        task = tasks.create_automatic_speech_recognition_task(tokenizer)
        yield Recognizer(model, runtime, target, encoder, decoder, tasks, tokenizer, task)


def fragments(stream: AutomaticSpeechRecognitionStream) -> list[str]:
    """Read a stream to its end."""
    return [update.fragment for update in stream]
