"""Speech recognition before there is a session: configurations and their checks, tasks, compositions (genai 10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes.backend import FakeBackend, Script
from fakes.model_files import ModelFiles
from fakes.rig import failing
from fakes.scripted import write_tokenizer
from fakes.speech import Recognizer, built, recognizing
from fakes.whole_whisper import (
    SAYS,
    SAYS_ELSE,
    hears_sound,
    in_half,
    two_in_one,
    whole_decoder,
    whole_encoder,
    without_state,
)
from genai import Tokenizer
from genai.log_mel import log_mel
from genai.tasks import (
    AutomaticSpeechRecognitionFinishReason,
    AutomaticSpeechRecognitionReadStatus,
    AutomaticSpeechRecognitionSessionState,
    AutomaticSpeechRecognitionWaveformMetadata,
    Tasks,
    WhisperAutomaticSpeechRecognitionBindings,
)
from genai.whisper_stages import declare_whisper_state
from models.onnx_models import add, save
from models.whisper_models import tones
from winml_lite import NotSupportedError, Runtime, TensorDataType, WinMLError
from winml_lite.native.backend import replaced_backend

Reason = AutomaticSpeechRecognitionFinishReason

BUSY = 0x800700AA
E_INVALIDARG = 0x80070057
E_NOT_VALID_STATE = 0x8007139F
INVALID_DATA = 0x8007000D
NOT_SUPPORTED = 0x80070032


@pytest.fixture
def recognizer(onnx_engine: str, files: ModelFiles) -> Iterator[Recognizer]:
    with recognizing(files.folder) as recognizer:
        yield recognizer


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_the_enumerations_have_their_numbers() -> None:
    assert [member.value for member in Reason] == [0, 1, 2, 3]
    assert [member.name for member in Reason] == ["INPUT_COMPLETE", "CAPACITY", "CANCELED", "ERROR"]
    assert [member.name for member in AutomaticSpeechRecognitionReadStatus] == ["UPDATE", "NEED_INPUT", "COMPLETED"]
    assert [member.value for member in AutomaticSpeechRecognitionReadStatus] == [0, 1, 2]
    states = [(member.name, member.value) for member in AutomaticSpeechRecognitionSessionState]
    assert states == [("EMPTY", 0), ("READY", 1), ("ACTIVE", 2), ("RESET_REQUIRED", 3), ("CLOSED", 4)]


# --- configuring ------------------------------------------------------------------------------------------------------


def test_before_configuring_all_bindings_are_none(recognizer: Recognizer) -> None:
    bindings = recognizer.task.create_configuration().whisper_bindings
    assert bindings == WhisperAutomaticSpeechRecognitionBindings(None, None, None, None, None, None, None, False)


def test_bindings_are_fresh_wrappers_of_the_same_objects(recognizer: Recognizer) -> None:
    configuration = recognizer.configuration()
    first, second = configuration.whisper_bindings, configuration.whisper_bindings
    assert first.encoder_stage is not second.encoder_stage
    assert first.encoder_stage is not None
    assert first.encoder_stage.underlying_object is recognizer.encoder[1].underlying_object
    first.encoder_stage.close()
    configuration.validate()


def test_configuring_returns_the_configuration(recognizer: Recognizer) -> None:
    configuration = recognizer.task.create_configuration()
    assert configuration.configure_whisper(**recognizer.parts()) is configuration


@pytest.mark.parametrize("part", ["encoder_pipeline", "decoder_stage", "tensor_target", "force_encoder_output_copy"])
def test_a_part_of_another_class_is_a_type_error(recognizer: Recognizer, part: str) -> None:
    with pytest.raises(TypeError, match=part):
        recognizer.configuration(**{part: 1})


@pytest.mark.parametrize("part", ["preprocessing_pipeline", "preprocessing_stage"])
def test_half_of_the_preprocessing_pair_is_refused(recognizer: Recognizer, part: str) -> None:
    with pytest.raises(ValueError, match="both or none"):
        recognizer.configuration(**{part: recognizer.encoder["stage" in part]})


def test_a_failed_call_leaves_the_parts_before(recognizer: Recognizer) -> None:
    configuration = recognizer.configuration()
    with pytest.raises(TypeError):
        configuration.configure_whisper(**recognizer.parts(force_encoder_output_copy=True, tensor_target=None))
    assert configuration.whisper_bindings.force_encoder_output_copy is False
    configuration.validate()


def test_the_parts_may_be_closed_by_the_caller(recognizer: Recognizer) -> None:
    configuration = recognizer.configuration()
    for part in (*recognizer.encoder, *recognizer.decoder, recognizer.target):
        part.close()
    configuration.validate()
    session = recognizer.task.create_session(configuration)
    configuration.close()
    recognizer.tokenizer.close()
    assert session.transcribe(*recognizer.sound(0)).transcript == "one"


# --- validating -------------------------------------------------------------------------------------------------------


def test_nothing_configured_is_a_wrong_state(recognizer: Recognizer) -> None:
    with failing(E_NOT_VALID_STATE):
        recognizer.task.create_configuration().validate()


def test_a_stage_outside_of_its_pipeline_is_refused(recognizer: Recognizer) -> None:
    with failing(E_INVALIDARG):
        recognizer.configuration(encoder_stage=recognizer.decoder[1]).validate()


def test_parts_of_another_runtime_are_refused(recognizer: Recognizer) -> None:
    with Runtime() as other, other.create_cpu_target() as target:
        with failing(E_INVALIDARG):
            recognizer.configuration(tensor_target=target).validate()
        pipeline, stage = built(other, target, recognizer.folder / "encoder.onnx")
        with failing(E_INVALIDARG):
            recognizer.configuration(encoder_pipeline=pipeline, encoder_stage=stage).validate()


def test_encoder_and_decoder_need_a_pipeline_each(recognizer: Recognizer) -> None:
    pipeline, stage = recognizer.decoder
    with failing(E_INVALIDARG) as caught:
        recognizer.configuration(encoder_pipeline=pipeline, encoder_stage=stage).validate()
    assert "a pipeline each" in str(caught.value)


def test_another_graph_is_no_encoder(recognizer: Recognizer, tmp_path: Path) -> None:
    pipeline, stage = built(recognizer.runtime, recognizer.target, Path(save(add(), tmp_path / "add.onnx")))
    with failing(E_INVALIDARG) as caught:
        recognizer.configuration(encoder_pipeline=pipeline, encoder_stage=stage).validate()
    assert "takes no features" in str(caught.value)


def test_another_graph_is_no_decoder(recognizer: Recognizer, tmp_path: Path) -> None:
    pipeline, stage = built(recognizer.runtime, recognizer.target, Path(save(add(), tmp_path / "add.onnx")))
    with failing(E_INVALIDARG) as caught:
        recognizer.configuration(decoder_pipeline=pipeline, decoder_stage=stage).validate()
    assert "takes nothing that the encoder gives" in str(caught.value)


def test_a_stage_of_llama_is_not_supported(recognizer: Recognizer, files: ModelFiles) -> None:
    with replaced_backend("llama", FakeBackend(Script(), logits=lambda ids: [0.0])):
        builder = recognizer.runtime.create_pipeline_builder()
        stage = builder.add_model_stage(recognizer.runtime.load_model(files.scripted_gguf), recognizer.target)
        pipeline = builder.build()
    with failing(NOT_SUPPORTED, NotSupportedError):
        recognizer.configuration(decoder_pipeline=pipeline, decoder_stage=stage).validate()


def test_state_that_is_not_declared_is_named_with_the_mend(recognizer: Recognizer) -> None:
    pipeline, stage = without_state(recognizer, recognizer.folder / "decoder.onnx")
    with failing(E_INVALIDARG) as caught:
        recognizer.configuration(decoder_pipeline=pipeline, decoder_stage=stage).validate()
    assert "'past_key_values.0.decoder.key' is state: call add_state_tensor_pair(1, 1)" in str(caught.value)


def test_a_tokenizer_of_another_kind_is_refused(recognizer: Recognizer, tmp_path: Path) -> None:
    with Tokenizer.from_file(write_tokenizer(tmp_path)) as tokenizer:
        task = recognizer.tasks.create_automatic_speech_recognition_task(tokenizer)
        configuration = task.create_configuration().configure_whisper(**recognizer.parts())
        with failing(INVALID_DATA) as caught:
            configuration.validate()
    assert "<|endoftext|>" in str(caught.value)


def test_a_failed_validation_can_be_mended(recognizer: Recognizer) -> None:
    configuration = recognizer.configuration(encoder_stage=recognizer.decoder[1])
    with failing(E_INVALIDARG):
        recognizer.task.create_session(configuration)
    configuration.configure_whisper(**recognizer.parts())
    assert recognizer.task.create_session(configuration).transcribe(*recognizer.sound(1)).transcript == "two"


# --- sessions of a task -----------------------------------------------------------------------------------------------


def test_a_configuration_is_consumed_once(recognizer: Recognizer) -> None:
    configuration = recognizer.configuration()
    recognizer.task.create_session(configuration).close()
    calls: list[Callable[[], object]] = [
        lambda: recognizer.task.create_session(configuration),
        lambda: configuration.configure_whisper(**recognizer.parts()),
        configuration.validate,
    ]
    for call in calls:
        with failing(E_NOT_VALID_STATE):
            call()
    assert configuration.whisper_bindings.encoder_stage is not None


def test_a_configuration_of_another_task_is_a_value_error(recognizer: Recognizer) -> None:
    other = recognizer.tasks.create_automatic_speech_recognition_task(recognizer.tokenizer)
    with pytest.raises(ValueError, match="another task"):
        other.create_session(recognizer.configuration())


def test_one_session_at_a_time_drives_a_pipeline(recognizer: Recognizer) -> None:
    session = recognizer.session()
    with failing(BUSY):
        recognizer.session()
    session.close()
    recognizer.session()


def test_the_default_session_is_made_once(recognizer: Recognizer) -> None:
    task = recognizer.task
    with pytest.raises(RuntimeError, match="default_configuration"):
        task.default_session  # noqa: B018
    task.default_configuration = recognizer.configuration(force_encoder_output_copy=True)
    task.default_configuration = recognizer.configuration()
    session = task.default_session
    assert task.default_session is session
    assert session.configuration is task.default_configuration
    with pytest.raises(RuntimeError, match="default session"):
        task.default_configuration = None


def test_a_default_configuration_of_another_class_is_a_type_error(recognizer: Recognizer) -> None:
    with pytest.raises(TypeError, match="default_configuration"):
        recognizer.task.default_configuration = 1  # type: ignore[assignment]


def test_a_task_transcribes_by_its_default_session(recognizer: Recognizer) -> None:
    recognizer.task.default_configuration = recognizer.configuration()
    with recognizer.task.stream(*recognizer.sound(0)) as stream:
        assert "".join(update.fragment for update in stream) == "one"
    assert recognizer.task.transcribe(*recognizer.sound(1)).transcript == "two"


def test_closing_a_task_closes_its_default_session(recognizer: Recognizer) -> None:
    task = recognizer.task
    task.default_configuration = recognizer.configuration()
    session = task.default_session
    with session.transcribe_waveform(*recognizer.sound(0)), failing(E_NOT_VALID_STATE):
        task.close()
    task.close()
    assert session.state is AutomaticSpeechRecognitionSessionState.CLOSED
    with pytest.raises(RuntimeError, match="AutomaticSpeechRecognitionTask is closed"):
        task.create_configuration()


def test_a_task_needs_an_open_tokenizer(recognizer: Recognizer) -> None:
    with pytest.raises(TypeError, match="tokenizer"):
        recognizer.tasks.create_automatic_speech_recognition_task("x")  # type: ignore[arg-type]
    recognizer.tokenizer.close()
    with pytest.raises(RuntimeError, match="Tokenizer is closed"):
        recognizer.tasks.create_automatic_speech_recognition_task(recognizer.tokenizer)


def test_opaque_members_are_there(recognizer: Recognizer) -> None:
    assert recognizer.tasks.automatic_speech_recognition_factory_interface is not None
    assert recognizer.task.underlying_object is not None
    configuration = recognizer.configuration()
    assert configuration.underlying_object is not None
    session = recognizer.task.create_session(configuration)
    with session.transcribe_waveform(*recognizer.sound(0)) as stream:
        assert stream.underlying_object is not None
    assert session.underlying_object is not None


def test_every_object_is_a_context_manager(recognizer: Recognizer) -> None:
    with (
        Tasks(recognizer.runtime) as tasks,
        tasks.create_automatic_speech_recognition_task(recognizer.tokenizer) as task,
    ):
        with task.create_configuration() as configuration:
            configuration.configure_whisper(**recognizer.parts())
            with task.create_session(configuration) as session:
                assert session.transcribe(*recognizer.sound(0)).transcript == "one"
    with pytest.raises(RuntimeError, match="AutomaticSpeechRecognitionConfiguration is closed"):
        configuration.validate()


# --- other compositions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [None, 16], ids=["any length", "built for 16 tokens"])
def test_a_decoder_without_a_cache_gets_all_tokens(recognizer: Recognizer, tmp_path: Path, length: int | None) -> None:
    session = recognizer.session(**whole(recognizer, tmp_path, length))
    assert session.transcribe(*recognizer.sound(0)).transcript == SAYS
    assert session.transcribe(*recognizer.sound(None)).transcript == SAYS_ELSE


def test_the_length_of_a_decoder_without_a_cache_is_the_capacity(recognizer: Recognizer, tmp_path: Path) -> None:
    result = recognizer.session(**whole(recognizer, tmp_path, 4)).transcribe(*recognizer.sound(0))
    assert (result.transcript, result.finish_reason) == (SAYS[:2], Reason.CAPACITY)


def whole(recognizer: Recognizer, folder: Path, length: int | None) -> dict[str, Any]:
    """Parts of a model whose decoder takes hidden states, and has no cache."""
    runtime, target = recognizer.runtime, recognizer.target
    encoder = built(runtime, target, Path(save(whole_encoder(), folder / "whole-encoder.onnx")))
    decoder = built(runtime, target, Path(save(whole_decoder(length), folder / "whole-decoder.onnx")))
    return {
        "encoder_pipeline": encoder[0],
        "encoder_stage": encoder[1],
        "decoder_pipeline": decoder[0],
        "decoder_stage": decoder[1],
    }


def test_a_decoder_that_is_two_graphs_in_one_is_refused(recognizer: Recognizer, tmp_path: Path) -> None:
    parts = whole(recognizer, tmp_path, None)
    graph = Path(save(two_in_one(), tmp_path / "merged.onnx"))
    parts["decoder_pipeline"], parts["decoder_stage"] = built(recognizer.runtime, recognizer.target, graph)
    with failing(E_INVALIDARG) as caught:
        recognizer.configuration(**parts).validate()
    assert "use the one without a cache" in str(caught.value)


def test_a_program_of_windowsml_runs_with_the_import_root_changed(recognizer: Recognizer, tmp_path: Path) -> None:
    runtime, target = recognizer.runtime, recognizer.target
    encoder_path = save(whole_encoder(("batch_size", "feature_size", "encoder_sequence_length")), tmp_path / "a.onnx")
    decoder_path = save(whole_decoder(None), tmp_path / "b.onnx")
    with ExitStack() as resources:
        encoder_model = resources.enter_context(runtime.load_model(str(encoder_path)))
        encoder_builder = resources.enter_context(runtime.create_pipeline_builder())
        encoder_stage = resources.enter_context(encoder_builder.add_model_stage(encoder_model, target, "encoder"))
        encoder_stage.symbolic_dimensions["feature_size"] = 80
        encoder_stage.symbolic_dimensions["encoder_sequence_length"] = 3000
        with encoder_stage.ort_options() as options:
            options.set_session_config("optimization.disable_specified_optimizers", "NhwcTransformer")
        encoder_pipeline = resources.enter_context(encoder_builder.build())
        decoder_model = resources.enter_context(runtime.load_model(str(decoder_path)))
        decoder_builder = resources.enter_context(runtime.create_pipeline_builder())
        decoder_stage = resources.enter_context(decoder_builder.add_model_stage(decoder_model, target, "decoder"))
        decoder_pipeline = resources.enter_context(decoder_builder.build())
        tokenizer = resources.enter_context(Tokenizer.from_file(str(recognizer.folder / "tokenizer.json")))
        tasks = resources.enter_context(Tasks(runtime))
        task = resources.enter_context(tasks.create_automatic_speech_recognition_task(tokenizer))
        configuration = resources.enter_context(task.create_configuration())
        configuration.configure_whisper(
            encoder_pipeline=encoder_pipeline,
            encoder_stage=encoder_stage,
            decoder_pipeline=decoder_pipeline,
            decoder_stage=decoder_stage,
            tensor_target=target,
        )
        configuration.validate()
        task.default_configuration = configuration
        samples = tones([0]).reshape(1, -1)
        waveform = resources.enter_context(runtime.tensor_from_numpy(samples, target=target))
        metadata = AutomaticSpeechRecognitionWaveformMetadata(sample_rate=16_000, valid_sample_count=samples.shape[1])
        stream = resources.enter_context(task.default_session.transcribe_waveform(waveform, metadata))
        fragments = [update.fragment for update in stream]
        result = stream.result
        result.raise_for_error()
    assert (fragments, result.transcript, result.finish_reason.name) == (list(SAYS), SAYS, "INPUT_COMPLETE")


def test_a_decoder_built_for_single_tokens(recognizer: Recognizer) -> None:
    with recognizer.runtime.load_model(recognizer.folder / "decoder.onnx") as model:
        builder = recognizer.runtime.create_pipeline_builder()
        stage = builder.add_model_stage(model, recognizer.target)
        declare_whisper_state(model, stage)
        stage.symbolic_dimensions["tokens"] = 1
        recognizer.decoder = builder.build(), stage
    assert recognizer.session().transcribe(*recognizer.sound(0, 6)).transcript == "one café"
    assert recognizer.decoder[0].run_count == 8  # two of the prompt, six more; the last says the end


def test_a_model_in_half_precision(recognizer: Recognizer, tmp_path: Path) -> None:
    encoder, decoder = (
        built(recognizer.runtime, recognizer.target, Path(save(in_half(recognizer.folder / name), tmp_path / name)))
        for name in ("encoder.onnx", "decoder.onnx")
    )
    recognizer.encoder, recognizer.decoder = encoder, decoder
    assert recognizer.session().transcribe(*recognizer.sound(3, None, 7)).transcript == "four end."


def test_parts_of_different_precision_are_refused(recognizer: Recognizer, tmp_path: Path) -> None:
    path = Path(save(in_half(recognizer.folder / "encoder.onnx"), tmp_path / "encoder.onnx"))
    recognizer.encoder = built(recognizer.runtime, recognizer.target, path)
    with failing(E_INVALIDARG) as caught:
        recognizer.configuration().validate()
    assert "'present.0.encoder.key' is FLOAT16" in str(caught.value)


def test_a_stage_in_python_may_make_the_features(recognizer: Recognizer) -> None:
    def features(samples: np.ndarray) -> np.ndarray:
        return log_mel(samples)

    ports = [(TensorDataType.FLOAT32, (480_000,))], [(TensorDataType.FLOAT32, (1, 80, 3000))]
    processor = recognizer.runtime.create_processor(features, *ports)
    builder = recognizer.runtime.create_pipeline_builder()
    stage = builder.add_processor_stage(processor, recognizer.target)
    session = recognizer.session(preprocessing_pipeline=builder.build(), preprocessing_stage=stage)
    assert session.transcribe(*recognizer.sound(2, 1)).transcript == "three two"


def test_a_preprocessing_stage_makes_the_features(recognizer: Recognizer, tmp_path: Path) -> None:
    path = Path(save(hears_sound(3), tmp_path / "features.onnx"))
    pipeline, stage = built(recognizer.runtime, recognizer.target, path)
    session = recognizer.session(preprocessing_pipeline=pipeline, preprocessing_stage=stage)
    assert session.transcribe(*recognizer.waveform(np.full(80, 0.25, np.float32))).transcript == "four"
    assert session.transcribe(*recognizer.waveform(np.full(80, -0.25, np.float32))).transcript == "."
    assert pipeline.run_count == 2


def test_features_of_the_caller_bypass_preprocessing(recognizer: Recognizer, tmp_path: Path) -> None:
    path = Path(save(hears_sound(3), tmp_path / "features.onnx"))
    pipeline, stage = built(recognizer.runtime, recognizer.target, path)
    session = recognizer.session(preprocessing_pipeline=pipeline, preprocessing_stage=stage)
    features = recognizer.runtime.tensor_from_numpy(np.full((1, 80, 3000), -1, np.float32))
    with session.transcribe_whisper_log_mel(features) as stream:
        assert [update.fragment for update in stream] == ["."]
    assert pipeline.run_count == 0


def test_a_preprocessing_stage_that_takes_no_sound_is_refused(recognizer: Recognizer) -> None:
    pipeline, stage = recognizer.stage("encoder")
    with pytest.raises(WinMLError, match="input 0 of the preprocessing stage"):
        recognizer.configuration(preprocessing_pipeline=pipeline, preprocessing_stage=stage).validate()


def test_metadata_is_a_value() -> None:
    first, second = (AutomaticSpeechRecognitionWaveformMetadata(16000, 5) for _ in range(2))
    assert first == second
    with pytest.raises(AttributeError):
        first.sample_rate = 8000  # type: ignore[misc]
