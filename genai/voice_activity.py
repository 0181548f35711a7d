"""Where in a sound somebody speaks: silero-vad as a stage of ONNX Runtime that keeps its state from step to step.

A step is 512 new samples at 16 kHz behind the 64 before them. Two forms of the graph are run: one step a run, with
inputs `input` [1, 576], `state` and perhaps `sr`; and many steps a run, with `input` [steps, 576], `h` and `c`. Either
way the state is fed back inside the pipeline, and the buffers are bound once. Not here: what the probabilities mean
(`region_finder.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from winml_lite import (
    Model,
    ModelSchema,
    NotSupportedError,
    Pipeline,
    Runtime,
    Stage,
    Tensor,
    TensorAccessMode,
    TensorDataType,
    WinMLError,
)

from .audio import Audio
from .closing import Closing
from .codes import FILE_NOT_FOUND, NOT_SUPPORTED
from .endpoints import FREE_DIMENSION
from .model_source import ENGINE_NAMES, Progress, naming, resolve
from .region_finder import SAMPLE_RATE, STEP, RegionFinder, SpeechRegion, SpeechRegionOptions

_CONTEXT = "genai.VoiceActivity"
_BEFORE = 64
"""Samples before a step that the model hears again with it."""
_WINDOW = _BEFORE + STEP
_STEPS_AT_ONCE = 64
"""Steps of one run, where the model takes many: more are not faster."""
_FLOAT32 = TensorDataType.FLOAT32


class VoiceActivity(Closing):
    """A model that tells for each 32 ms of sound how likely it is speech.

    `name` is what it was loaded as, `engine` `"ONNX Runtime"`, `file` the model file. One object follows one sound at a
    time: what it has heard counts for what comes. It is not for several threads at once (0x800700AA).
    """

    sample_rate = SAMPLE_RATE
    """Samples a second that it hears; other sound is brought to it by `audio_blocks`."""
    step = STEP
    """Samples of one probability."""

    @naming("genai.VoiceActivity")
    def __init__(
        self,
        source: str | os.PathLike[str] = "silero-vad",
        *,
        offline: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Load a model: an `.onnx` file in the form of silero-vad 5 or 6, a folder with one, or a name of the catalog.

        offline, progress: as for `genai.load`. Raises WinMLError: 0x80070002 for a missing file, 0x80070570 for an
        unreadable one, 0x80070032 for a model of another kind.
        """
        self.name, path = resolve(source, "ort", offline, progress, ("voice-activity",))
        file = _model_file(path)
        self.engine = ENGINE_NAMES["ort"]
        self.file = str(file)
        self._runtime = Runtime()
        try:
            with self._runtime.load_model(file) as model:
                ports = _find_ports(file, model)
                self._stage, self._pipeline = _build(self._runtime, model, ports)
        except BaseException:
            self._runtime.close()
            raise
        self._ports = ports
        self._steps = _STEPS_AT_ONCE if ports.takes_many else 1
        self._windows = np.zeros((self._steps, _WINDOW), np.float32)
        self._results = np.zeros(self._steps, np.float32)
        self._tensors: dict[int, tuple[Tensor, Tensor]] = {}
        self._bound = 0
        self._heard = np.zeros(_BEFORE, np.float32)
        self._is_open = True

    def __repr__(self) -> str:
        return f"<VoiceActivity {self.name!r} {f'on {self.engine}, {self.file}' if self._is_open else '(closed)'}>"

    def probabilities(self, samples: npt.ArrayLike, *, last: bool = False) -> npt.NDArray[np.float32]:
        """Return the probability of speech, 0 to 1, for each whole step of 512 samples that is there now.

        samples: the next ones of the sound, (frames,) at 16 kHz, of any length; floats or integers as `Audio` takes
        them. What is less than a step waits for the next call.
        last: whether the sound ends here. Then zeros complete the last step, and the next call begins a new sound.

        ValueError for what is no sound of one channel, before anything is heard. After another failure, or Ctrl-C, a
        new sound begins.
        """
        self._check_open()
        sound = Audio(samples, SAMPLE_RATE)
        if sound.channels != 1:
            raise ValueError(f"samples have {sound.channels} channels; make one of them with Audio.mono")
        joined = np.concatenate([self._heard, sound.samples])
        if last:
            joined = np.concatenate([joined, np.zeros((_BEFORE - len(joined)) % STEP, np.float32)])
        count = (len(joined) - _BEFORE) // STEP
        result = np.empty(count, np.float32)
        windows = sliding_window_view(joined, _WINDOW)[::STEP] if count else self._windows[:0]
        try:
            for start in range(0, count, self._steps):
                steps = min(self._steps, count - start)
                self._bind(steps)
                np.copyto(self._windows[:steps], windows[start : start + steps])
                self._pipeline.run()
                result[start : start + steps] = self._results[:steps]
        except BaseException:
            with suppress(WinMLError):  # what went wrong first is what counts
                self.reset()
            raise
        self._heard = joined[count * STEP :].copy()
        if last:
            self.reset()
        return result

    def reset(self) -> None:
        """Begin a new sound: forget what was heard."""
        self._check_open()
        self._pipeline.reset()
        self._heard = np.zeros(_BEFORE, np.float32)

    def close(self) -> None:
        """Free the model. Closing twice is fine."""
        if self._is_open:
            self._is_open = False
            self._stage.close()
            self._pipeline.close()
            self._runtime.close()

    def _check_open(self) -> None:
        if not self._is_open:
            raise RuntimeError("VoiceActivity is closed")

    def _bind(self, steps: int) -> None:
        """Bind the buffers of a run over so many steps."""
        if steps == self._bound:
            return
        if steps not in self._tensors:
            shape = (steps,) if self._ports.takes_many else (steps, 1)
            self._tensors[steps] = (
                self._alias(self._windows[:steps], (steps, _WINDOW)),
                self._alias(self._results[:steps], shape),
            )
        windows, results = self._tensors[steps]
        self._stage.bind_input(self._ports.sound, windows)
        self._stage.bind_output(self._ports.probability, results)
        self._bound = steps

    def _alias(self, array: npt.NDArray[np.float32], shape: tuple[int, ...]) -> Tensor:
        return self._runtime.tensor_from_buffer(array, _FLOAT32, shape, access=TensorAccessMode.READWRITE)


def speech_regions(
    blocks: Iterable[npt.ArrayLike], activity: VoiceActivity, options: SpeechRegionOptions | None = None
) -> Iterator[SpeechRegion]:
    """Yield the regions of a sound in which somebody speaks, in order, while it is read.

    blocks: the sound, mono at 16 kHz, in pieces of any length, as `audio_blocks` gives it.
    activity: what hears it; it begins anew.

    A region comes about as soon as it is certain: `min_silence` after its end, and with the padding it takes from a
    pause. Regions do not overlap. Errors are those of `VoiceActivity.probabilities` and of the blocks.
    """
    finder = RegionFinder(options)
    activity.reset()
    length = 0
    for block in blocks:
        samples = np.asarray(block)
        length += len(samples)
        yield from finder.push(activity.probabilities(samples).tolist())
    yield from finder.push(activity.probabilities(np.zeros(0, np.float32), last=True).tolist())
    yield from finder.finish(length)


@dataclass(frozen=True, slots=True)
class _Ports:
    """The inputs and outputs of the graph, by their roles."""

    sound: int
    rate: int | None
    states: tuple[tuple[int, int], ...]
    """Pairs of an output and the input that it is fed back to."""
    probability: int
    takes_many: bool
    """Whether a run takes many steps of one sound."""


def _find_ports(file: Path, model: Model) -> _Ports:
    """Tell the ports by their element types and ranks."""
    schema = model.schema()
    inputs = [schema.input_desc(index) for index in range(schema.input_count)]
    outputs = [schema.output_desc(index) for index in range(schema.output_count)]
    sounds = [i for i, (kind, shape) in enumerate(inputs) if kind is _FLOAT32 and len(shape) == 2]
    rates = [i for i, (kind, shape) in enumerate(inputs) if kind is TensorDataType.INT64 and len(shape) <= 1]
    befores = [i for i, (kind, shape) in enumerate(inputs) if kind is _FLOAT32 and len(shape) == 3]
    afters = [i for i, (kind, shape) in enumerate(outputs) if kind is _FLOAT32 and len(shape) == 3]
    answers = [i for i, (kind, shape) in enumerate(outputs) if kind is _FLOAT32 and len(shape) in (1, 2)]
    is_known = (
        len(sounds) == len(answers) == 1
        and len(rates) <= 1
        and 0 < len(befores) == len(afters)
        and len(inputs) == 1 + len(rates) + len(befores)
        and len(outputs) == 1 + len(afters)
        and inputs[sounds[0]][1][1] in (_WINDOW, FREE_DIMENSION)
    )
    if not is_known:
        shown = ", ".join(_shown(schema, index) for index in range(schema.input_count))
        text = f"{file} does not hear voices as silero-vad does: its inputs are {shown}"
        raise NotSupportedError(NOT_SUPPORTED, _CONTEXT, text)
    takes_many = len(outputs[answers[0]][1]) == 1
    pairs = tuple(zip(afters, befores, strict=True))
    return _Ports(sounds[0], rates[0] if rates else None, pairs, answers[0], takes_many)


def _shown(schema: ModelSchema, index: int) -> str:
    data_type, shape = schema.input_desc(index)
    return data_type.name + str(["?" if extent == FREE_DIMENSION else extent for extent in shape]).replace("'", "")


def _build(runtime: Runtime, model: Model, ports: _Ports) -> tuple[Stage, Pipeline]:
    """Build the pipeline with its state fed back, zero at first."""
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model, name="voice activity")
    schema = model.schema()
    stage.ort_options().set_thread_count(1)  # the graph is small: a second thread only makes it slower
    for after, before in ports.states:
        builder.connect_next_iteration(stage, after, stage, before)
        shape = tuple(1 if extent == FREE_DIMENSION else extent for extent in schema.input_desc(before)[1])
        with runtime.create_tensor(_FLOAT32, shape) as zeros:
            stage.bind_input(before, zeros)
    if ports.rate is not None:
        shape = tuple(1 for _ in schema.input_desc(ports.rate)[1])
        with runtime.create_tensor(TensorDataType.INT64, shape, np.array(SAMPLE_RATE, np.int64)) as rate:
            stage.bind_input(ports.rate, rate)
    return stage, builder.build()


def _model_file(path: Path) -> Path:
    """Return the one model of a folder, or the file itself."""
    if not path.is_dir():
        return path
    files = sorted(path.glob("*.onnx"))
    if len(files) != 1:
        found = f"holds {len(files)} ONNX files: name one of them" if files else "holds no ONNX file"
        raise WinMLError(FILE_NOT_FOUND, _CONTEXT, f"{path} {found}")
    return files[0]
