"""The members of a stage for embedding rows between token runs (runtime §11).

A decoder stage that takes rows makes encoders for them (`media_encoder.py`); the rows of one `encode` are then selected
for one run. Feeding them is the engine's work (`native/segments.py`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from .checks import index_value
from .errors import E_INVALIDARG, E_NOT_VALID_STATE, NOT_SUPPORTED, WinMLError
from .files.mapped import reading_failure
from .handles import Closeable
from .media_encoder import EncoderCore, MediaEncoder, PipelineEncoding, SequenceSegmentLayout
from .model import probe_file
from .native.segments import Segments
from .pipeline import Pipeline, PipelineCore
from .stage_core import StageCore
from .storage import descriptor_text
from .target import ExecutionTarget, TargetCore, target_core
from .tensor import Tensor
from .values import FREE_DIMENSION, SegmentedSequenceCapabilities, TensorDataType

if TYPE_CHECKING:
    from .stage import Stage

Result = TypeVar("Result")

_CAPABILITIES = "IWinMLStage.SegmentedCapabilities"
_LENGTH = "IWinMLStage.EmbeddingLength"
_TYPE = "IWinMLStage.EmbeddingDataType"
_FROM_FILE = "IWinMLStage.CreateMediaEncoderFromFile"
_FROM_PIPELINE = "IWinMLStage.CreateMediaEncoderFromPipeline"
_BIND = "IWinMLStage.BindEmbeddingSegment"
_CLEAR = "IWinMLStage.ClearEmbeddingSegment"
_NOTHING = SegmentedSequenceCapabilities(False, False, False, False, 0, TensorDataType.UNDEFINED)


class SegmentMembers(Closeable[StageCore]):
    """Images and sound, or any rows of numbers, as input of a decoder between runs of tokens.

    All of this needs a built stage (else 0x8007139F) that takes rows (else NotSupportedError 0x80070032) and whose
    pipeline is not running (else 0x800700AA).
    """

    __slots__ = ()

    @property
    def segmented_capabilities(self) -> SegmentedSequenceCapabilities:
        """What the built stage takes; nothing at all is all False, not an error."""
        core = self._core
        core.built(_CAPABILITIES)
        return core.gate.hold(_CAPABILITIES, _capabilities, core)

    @property
    def embedding_length(self) -> int:
        """Numbers in one embedding row; known once the stage has made an encoder (before: 0x8007139F)."""
        core = self._core
        return _held(core, _LENGTH, lambda segments: _known(core, _LENGTH, segments.row_length))

    @property
    def embedding_data_type(self) -> TensorDataType:
        """Element type of the rows, FLOAT32; known once the stage has made an encoder (before: 0x8007139F)."""
        core = self._core
        return _held(core, _TYPE, lambda segments: _known(core, _TYPE, TensorDataType.FLOAT32))

    def create_media_encoder_from_file(
        self, path: str | os.PathLike[str], target: ExecutionTarget | None = None
    ) -> MediaEncoder:
        """Load the projector file of a GGUF model (its "mmproj" file) as an encoder for this stage.

        A projector for images and sound is used for images. The file is tried in another process first, since the
        library that loads it ends the process over a damaged one.

        `target`: None, or what the stage runs on (another one is NotSupportedError 0x80070032). A projector that does
        not fit the model is that as well, a file that is none 0x80070570; other codes as for `load_model`.
        """
        core = self._core
        name = _path(path)
        place = target_core(target)
        return _held(core, _FROM_FILE, lambda segments: _from_file(core, segments, name, place))

    def create_media_encoder_from_pipeline(
        self, pipeline: Pipeline, in_stage: Stage, in_index: int, out_stage: Stage, out_index: int
    ) -> MediaEncoder:
        """Use a built pipeline as an encoder: the media go to one input of it, one output gives the rows.

        The output is FLOAT32 (rows, embedding length) or (1, rows, embedding length). Other inputs keep what is bound
        to them. While the encoder is in use, leave the pipeline alone; the encoder keeps it alive.

        0x80070057: a stage of another pipeline, objects of another Runtime, an index out of range, an input that is
        connected, an output that does not depend on the input. NotSupportedError 0x80070032: feedback or state in the
        pipeline, another hardware class than this stage's, an output of another type or width.
        """
        core = self._core
        entry = _end(in_stage, in_index, "in")
        exit_ = _end(out_stage, out_index, "out")
        if not isinstance(pipeline, Pipeline):
            raise TypeError(f"pipeline must be a Pipeline, not {type(pipeline).__name__}")
        source = pipeline._core
        return _held(core, _FROM_PIPELINE, lambda segments: _from_pipeline(core, segments, source, entry, exit_))

    def bind_embedding_segment(self, index: int, embeddings: Tensor, layout: SequenceSegmentLayout) -> None:
        """Make the next successful run consume these rows instead of what is bound to input `index`.

        `embeddings` and `layout` come from one `encode` of an encoder of this stage (else 0x80070057). That run gives
        no logits: `output` is 0x8007139F until tokens have run. Then the tensor bound to the input is used again.
        Framing tokens may go with the rows: see the counts of the layout.
        """
        core = self._core
        place = index_value(index, "index")
        for value, kind in ((embeddings, Tensor), (layout, SequenceSegmentLayout)):
            if not isinstance(value, kind):
                raise TypeError(f"expected a {kind.__name__}, not {type(value).__name__}")
        rows, paired = embeddings._core, layout._core

        def bind(segments: Segments) -> None:
            _check_input(core, segments, place, _BIND)
            if not paired.fits(core, rows):
                text = "tensor and layout are not from one encode of an encoder of this stage"
                raise WinMLError(E_INVALIDARG, _BIND, text)
            segments.select(rows, paired.plan)
            core.missing.discard(place)

        _held(core, _BIND, bind)

    def clear_embedding_segment(self, index: int) -> None:
        """Drop what was selected for the next run; nothing if nothing was."""
        core = self._core
        place = index_value(index, "index")

        def clear(segments: Segments) -> None:
            _check_input(core, segments, place, _CLEAR)
            core.drop_segment()

        _held(core, _CLEAR, clear)


def _held(core: StageCore, context: str, work: Callable[[Segments], Result]) -> Result:
    """Return `work(segments)` of a stage that takes rows, done while nothing else uses its pipeline."""
    core.built(context)
    return core.gate.hold_optional(context, lambda: work(_segments(core, context)))


def _segments(core: StageCore, context: str) -> Segments:
    segments = core.built(context).segments
    if segments is None:
        raise WinMLError(NOT_SUPPORTED, context, f"{core.debug_name} takes no embedding rows; GGUF decoders do")
    return segments


def _capabilities(core: StageCore) -> SegmentedSequenceCapabilities:
    segments = core.built(_CAPABILITIES).segments
    if segments is None:
        return _NOTHING
    return SegmentedSequenceCapabilities(
        segments.reads_projectors, True, True, True, segments.row_length, TensorDataType.FLOAT32
    )


def _known(core: StageCore, context: str, value: Result) -> Result:
    if not core.has_encoder:
        raise WinMLError(E_NOT_VALID_STATE, context, f"{core.debug_name} has made no encoder yet")
    return value


def _check_input(core: StageCore, segments: Segments, index: int, context: str) -> None:
    core.check_index("inputs", index, context)
    if index != segments.input_index:
        raise WinMLError(E_INVALIDARG, context, f"input {index} of {core.debug_name} takes no embedding rows")


def _path(path: object) -> str:
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    if not isinstance(path, str):
        raise TypeError(f"path must be a str, not {type(path).__name__}")
    if not path:
        raise ValueError("path must not be empty")
    return path


def _from_file(core: StageCore, segments: Segments, path: str, place: TargetCore | None) -> MediaEncoder:
    if place is not None:
        _check_target(core, place)
    if not segments.reads_projectors:
        raise WinMLError(NOT_SUPPORTED, _FROM_FILE, "this build of llama.cpp comes without libmtmd")
    if stat.S_ISDIR(probe_file(path).st_mode):
        raise WinMLError(E_INVALIDARG, _FROM_FILE, f"{path} is a folder; pass the projector file in it")
    try:
        projector = segments.open_projector(os.path.abspath(path))
    except OSError as error:
        raise reading_failure(path, error) from error.__cause__
    encoder = EncoderCore(core, segments.row_length, projector)
    core.has_encoder = True
    return MediaEncoder(encoder)


def _check_target(core: StageCore, place: TargetCore) -> None:
    kind = core.built(_FROM_FILE).target_kind
    if place.runtime is not core.runtime or place.kind is not kind or place.provider is not None:
        text = f"the encoder runs where {core.debug_name} does, on {kind.name}; leave target out"
        raise WinMLError(NOT_SUPPORTED, _FROM_FILE, text)


End = tuple[StageCore, int]


def _end(stage: Stage, index: int, side: str) -> End:
    """Check one end of an encoder pipeline."""
    if not isinstance(stage, SegmentMembers):
        raise TypeError(f"{side}_stage must be a Stage, not {type(stage).__name__}")
    return stage._core, index_value(index, f"{side}_index")


def _from_pipeline(core: StageCore, segments: Segments, pipeline: PipelineCore, entry: End, exit_: End) -> MediaEncoder:
    _check_ends(core, pipeline, entry, exit_)
    _check_stages(core, pipeline)
    stage, output = exit_
    data_type, shape = stage.built(_FROM_PIPELINE).outputs[output]
    is_matrix = len(shape) == 2 or (len(shape) == 3 and shape[0] in (1, FREE_DIMENSION))
    is_wide_enough = is_matrix and shape[-1] in (segments.row_length, FREE_DIMENSION)
    if data_type is not TensorDataType.FLOAT32 or not is_wide_enough:
        text = (
            f"output {output} of {stage.debug_name} is {descriptor_text((data_type, shape))}, "
            f"{core.debug_name} takes FLOAT32 rows of {segments.row_length}"
        )
        raise WinMLError(NOT_SUPPORTED, _FROM_PIPELINE, text)
    encoder = EncoderCore(core, segments.row_length, PipelineEncoding(pipeline, entry, exit_))
    core.has_encoder = True
    return MediaEncoder(encoder)


def _check_ends(core: StageCore, pipeline: PipelineCore, entry: End, exit_: End) -> None:
    """Refuse ends that are not in the pipeline, are fed already, or do not belong together."""
    for stage, index, side in ((*entry, "inputs"), (*exit_, "outputs")):
        if stage.runtime is not core.runtime:
            raise WinMLError(E_INVALIDARG, _FROM_PIPELINE, f"{stage.debug_name} belongs to another Runtime")
        if not any(stage is member for member in pipeline.stages):
            raise WinMLError(E_INVALIDARG, _FROM_PIPELINE, f"{stage.debug_name} is a stage of another pipeline")
        stage.check_index(side, index, _FROM_PIPELINE)
    stage, index = entry
    if index in stage.fed_inputs:
        raise WinMLError(E_INVALIDARG, _FROM_PIPELINE, f"input {index} of {stage.debug_name} is fed by a connection")
    if not pipeline.graph.reaches(stage, exit_[0]):
        text = f"{exit_[0].debug_name} does not depend on {stage.debug_name}"
        raise WinMLError(E_INVALIDARG, _FROM_PIPELINE, text)


def _check_stages(core: StageCore, pipeline: PipelineCore) -> None:
    """Refuse a pipeline that carries something from one run to the next, or runs elsewhere."""
    kind = core.built(_FROM_PIPELINE).target_kind
    if pipeline.graph.has_feedback:
        raise WinMLError(NOT_SUPPORTED, _FROM_PIPELINE, "an encoder pipeline has no connections to the next iteration")
    for stage in pipeline.stages:
        executor = stage.built(_FROM_PIPELINE)
        if executor.sequence is not None or stage.options.state_pairs or stage.source.kept:
            raise WinMLError(NOT_SUPPORTED, _FROM_PIPELINE, f"{stage.debug_name} keeps state; an encoder has none")
        if executor.target_kind is not kind:
            text = f"{stage.debug_name} runs on {executor.target_kind.name}, {core.debug_name} on {kind.name}"
            raise WinMLError(NOT_SUPPORTED, _FROM_PIPELINE, text)
