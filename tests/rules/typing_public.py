"""The types that users see, checked by mypy with the rest of the tests; nothing here is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import genai
import genai.tasks
import winml_lite


def short_road(model: genai.LanguageModel) -> None:
    assert_type(genai.load("model.gguf"), genai.LanguageModel)
    stream = model.stream("text", max_new_tokens=8, stop="\n")
    assert_type(stream, genai.TextStream)
    assert_type(next(stream), str)
    assert_type(stream.result, genai.TextGenerationResult)
    assert_type(model.generate([1, 2], temperature=0.5).text, str)
    assert_type(model.chat(system="Be brief."), genai.Chat)
    assert_type(model.chat().send("text", seed=1).token_ids, tuple[int, ...])
    assert_type(model.chat().send("text", choices=["yes", "no"]).constraint_complete, bool | None)
    assert_type(model.tokenizer.create_constraint_from_regex("[0-9]+"), genai.TokenConstraint)
    assert_type(model.tokenizer.encode("text"), list[int])
    assert_type(model.tokenizer.create_decoder().decode_token(1), str)


def sampling(model: genai.LanguageModel) -> None:
    def halve(ids: tuple[int, ...], row: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return row / 2

    def is_long(token_ids: tuple[int, ...], text: str) -> bool:
        return len(text) > 100

    options = genai.TextGenerationOptions(8, logits_processors=halve, stopping=is_long, dry_sequence_breakers="\n")
    assert_type(options.top_n_sigma, float)
    result = model.generate("text", logits_processors=[halve], stopping=is_long, logit_bias={1: -1.5}, top_logprobs=2)
    assert_type(result.logprobs, tuple[genai.TokenLogprob, ...] | None)
    assert_type(result.stop_offset, int | None)
    record = genai.TokenLogprob(1, -0.5, ((1, -0.5),))
    assert_type(record.top, tuple[tuple[int, float], ...])
    model.generate("text", logit_bias={"1": float("-inf")}, dry_sequence_breakers=[13, "\n"], include_stop=True)


class Sink:
    def write_artifact_bytes(self, data: memoryview) -> None: ...

    def begin_resource(self, key: str, descriptor: winml_lite.ResourceDescriptor) -> None:
        assert_type(descriptor.byte_size, int)

    def write_resource_bytes(self, key: str, data: memoryview) -> None: ...

    def end_resource(self, key: str) -> None: ...


def compilation(runtime: winml_lite.Runtime, model: winml_lite.Model) -> None:
    compiler = runtime.create_cpu_target().model_compiler()
    assert_type(compiler, winml_lite.ModelCompiler)
    options = compiler.create_options()
    assert_type(options, winml_lite.ModelCompileOptions)
    assert_type(options.form, winml_lite.CompiledModelForm)
    options.form = 1
    assert_type(options.symbolic_dimensions, winml_lite.SymbolicDimensionOverrides)
    compiler.compile_to_file(model, "out.onnx", "weights.bin", options=options)
    compiler.compile_to_sink(model, Sink())
    winml_lite.save_as_ort(model, "out.ort", symbolic_dimensions={"batch": 1})
    assert_type(winml_lite.describe_onnx("out.onnx").external_data, tuple[winml_lite.ExternalData, ...])
    assert_type(winml_lite.describe_onnx("out.onnx").inputs, tuple[winml_lite.OnnxPort, ...])


def object_model(runtime: winml_lite.Runtime, stage: winml_lite.Stage) -> None:
    assert_type(runtime.enumerate_devices(), list[winml_lite.DeviceInfo])
    model = runtime.load_model("model.onnx")
    assert_type(model, winml_lite.Model)
    assert_type(model.schema().input_count, int)
    builder = runtime.create_pipeline_builder()
    assert_type(builder.add_model_stage(model), winml_lite.Stage)
    processor = runtime.create_processor(abs, [(1, [None])], [(winml_lite.TensorDataType.FLOAT32, (2**64 - 1,))])
    assert_type(processor.execute([stage.output(0)]), list[winml_lite.Tensor])
    assert_type(builder.add_processor_stage(processor), winml_lite.Stage)
    assert_type(builder.build(), winml_lite.Pipeline)
    assert_type(builder.build().execution().submit(), winml_lite.Fence)
    assert_type(builder.build().iteration_execution().submit_iterations(2), winml_lite.Fence)
    assert_type(builder.build().execution().capabilities, winml_lite.PipelineExecutionCapabilities)
    assert_type(stage.output(0), winml_lite.Tensor)
    assert_type(stage.output(0).desc(), tuple[winml_lite.TensorDataType, tuple[int, ...]])
    assert_type(stage.output(0).to_numpy(), npt.NDArray[Any])
    assert_type(stage.sequence_position, int)
    assert_type(stage.speculative_capabilities, winml_lite.SpeculativeCapabilities)
    assert_type(stage.step_all_positions([1, 2]), memoryview)
    assert_type(stage.commit_accepted_prefix(1), int)
    assert_type(stage.propose_draft_tokens(1, 2), list[int])
    assert_type(stage.segmented_capabilities, winml_lite.SegmentedSequenceCapabilities)
    assert_type(stage.create_media_encoder_from_file("mmproj.gguf"), winml_lite.MediaEncoder)
    encoder = stage.create_media_encoder_from_pipeline(builder.build(), stage, 0, stage, 0)
    assert_type(encoder.encode(stage.output(0)), tuple[winml_lite.Tensor, winml_lite.SequenceSegmentLayout])
    assert_type(encoder.media_tensor_desc, tuple[winml_lite.TensorDataType, tuple[int, ...]])
    assert_type(winml_lite.engines(), tuple[winml_lite.EngineInfo, ...])


def chat_task(session: genai.tasks.ChatCompletionSession, tokenizer: genai.Tokenizer) -> None:
    request = genai.tasks.ChatCompletionRequest()
    tasks = genai.tasks.Tasks(session.runtime)
    assert_type(tasks.create_chat_completion_task(tokenizer), genai.tasks.ChatCompletionTask)
    stream = session.stream(request)
    assert_type(stream, genai.tasks.ChatCompletionStream)
    assert_type(next(stream), genai.tasks.ChatCompletionEvent)
    assert_type(stream.read_next(), genai.tasks.ChatCompletionEvent | None)
    assert_type(stream.constraint, genai.TokenConstraint | None)
    result = session.generate(request)
    assert_type(result, genai.tasks.ChatCompletionResult)
    assert_type(result.content, str)
    assert_type(result.tool_calls, tuple[genai.tasks.ChatCompletionToolCall, ...])
    assert_type(result.prompt_cache_use, genai.tasks.ChatCompletionPromptCacheUse)
    assert_type(result.text_generation_result, genai.tasks.TextGenerationResult)


def speech_task(tasks: genai.tasks.Tasks, tokenizer: genai.Tokenizer, waveform: winml_lite.Tensor) -> None:
    task = tasks.create_automatic_speech_recognition_task(tokenizer)
    assert_type(task, genai.tasks.AutomaticSpeechRecognitionTask)
    configuration = task.create_configuration()
    assert_type(configuration, genai.tasks.AutomaticSpeechRecognitionConfiguration)
    assert_type(configuration.whisper_bindings, genai.tasks.WhisperAutomaticSpeechRecognitionBindings)
    session = task.create_session(configuration)
    assert_type(session, genai.tasks.AutomaticSpeechRecognitionSession)
    assert_type(session.state, genai.tasks.AutomaticSpeechRecognitionSessionState)
    metadata = genai.tasks.AutomaticSpeechRecognitionWaveformMetadata(16000, 480_000)
    stream = session.transcribe_waveform(waveform, metadata)
    assert_type(stream, genai.tasks.AutomaticSpeechRecognitionStream)
    assert_type(next(stream), genai.tasks.AutomaticSpeechRecognitionUpdate)
    assert_type(stream.read_next(), genai.tasks.AutomaticSpeechRecognitionUpdate | None)
    assert_type(stream.result.finish_reason, genai.tasks.AutomaticSpeechRecognitionFinishReason)
    assert_type(session.transcribe(waveform, metadata).transcript, str)
    live = session.begin_live_input(metadata, 4)
    assert_type(live.input.write_chunk(1, waveform, 160), genai.tasks.AutomaticSpeechRecognitionChunkAcceptance)


def beside_generating(model: genai.LanguageModel, session: genai.tasks.TextGenerationSession) -> None:
    assert_type(model.score("a", [" b"]), list[genai.ContinuationScore])
    assert_type(model.perplexity("a b c"), genai.Perplexity)
    assert_type(model.embed(["a", "b"]), npt.NDArray[np.float32])
    with genai.load_embedding("encoder.gguf") as encoder:
        assert_type(encoder, genai.EmbeddingModel)
        assert_type(encoder.embed("a"), npt.NDArray[np.float32])
    session.save_state("session.state")
    session.load_state("session.state")


async def beside_generating_async(model: genai.LanguageModel) -> None:
    assert_type(await model.ascore("a", [" b"]), list[genai.ContinuationScore])
    assert_type(await model.aperplexity("a b c", timeout=1.0), genai.Perplexity)
    assert_type(await model.aembed(["a", "b"], timeout=1.0), npt.NDArray[np.float32])


def saved_state(stage: winml_lite.Stage) -> None:
    assert_type(stage.model_digest, str)
    stage.save_sequence_state("stage.state", b"note")
    assert_type(stage.load_sequence_state("stage.state"), bytes)


def sound(activity: genai.VoiceActivity, runtime: winml_lite.Runtime) -> None:
    audio = genai.read_audio("speech.wav").mono().resampled(16000)
    assert_type(audio, genai.Audio)
    assert_type(audio.samples, npt.NDArray[np.float32])
    genai.write_audio("speech.flac", ([0.5, -0.5], 16000), sample_format="int24")
    assert_type(next(genai.audio_blocks(b"RIFF")), npt.NDArray[np.float32])
    regions = genai.speech_regions(genai.audio_blocks((audio.samples, 8000)), activity)
    assert_type(next(regions), genai.SpeechRegion)
    assert_type(activity.probabilities(audio.samples, last=True), npt.NDArray[np.float32])
    assert_type(genai.WhisperFolder.open("whisper").features(audio.samples), npt.NDArray[np.float32])
    options = winml_lite.AudioTensorOptions(channels=1, window_frames=400, hop_frames=160)
    tensor = runtime.tensor_from_audio(audio.samples, sample_rate=16000, options=options)
    assert_type(tensor.to_audio_bytes(sample_rate=16000, channels=1, sample_format="int32"), bytes)


def speech_model(model: genai.SpeechModel) -> None:
    stream = model.stream(np.zeros(16000, np.float32), language="en", temperatures=0.5)
    assert_type(next(stream), genai.TranscriptSegment)
    assert_type(stream.result, genai.Transcript)
    assert_type(model.transcribe((np.zeros(8000), 8000), voice_activity=False), genai.Transcript)
    assert_type(model.transcribe(iter([np.zeros(8000)]), sample_rate=8000).timings.real_time_factor, float)
    assert_type(model.stream(iter([np.zeros(8000)]), live=True), genai.SpeechStream)


async def speech_model_async(model: genai.SpeechModel) -> None:
    async for segment in model.astream("speech.wav"):
        assert_type(segment, genai.TranscriptSegment)
    assert_type(await model.atranscribe("speech.wav"), genai.Transcript)


async def vectors_and_labels_async(encoder: genai.EmbeddingModel, classifier: genai.ImageClassifier) -> None:
    assert_type(await encoder.aembed(["a", "b"], timeout=1.0), npt.NDArray[np.float32])
    assert_type(await classifier.aclassify("cat.jpg"), tuple[genai.ImageLabel, ...])
    assert_type(await classifier.aclassify([Path("cat.jpg")]), list[tuple[genai.ImageLabel, ...]])
    assert_type(await classifier.alogits("cat.jpg"), npt.NDArray[np.float32])


def pictures(runtime: winml_lite.Runtime) -> None:
    options = winml_lite.ImageTensorOptions(size=(224, 224), normalization=winml_lite.TensorNormalization.imagenet())
    tensor = runtime.tensor_from_image(np.zeros((2, 2, 3), np.uint8), options=options)
    assert_type(tensor, winml_lite.Tensor)
    assert_type(tensor.to_image_bytes(size=(224, 224), options=options), bytes)
    assert_type(runtime.nv12_bytes_from_tensor(tensor, options=options), bytes)


def classification(pixels: npt.NDArray[np.uint8], files: list[Path]) -> None:
    with genai.load_classifier("model.onnx", labels=["a", "b"], size=224, normalization="imagenet") as model:
        assert_type(model, genai.ImageClassifier)
        assert_type(model.classify("cat.jpg"), tuple[genai.ImageLabel, ...])
        assert_type(model.classify(Path("cat.jpg"), top=1), tuple[genai.ImageLabel, ...])
        assert_type(model.classify(pixels)[0].probability, float)
        assert_type(model.classify(["cat.jpg", pixels, b"..."]), list[tuple[genai.ImageLabel, ...]])
        assert_type(model.classify(files), list[tuple[genai.ImageLabel, ...]])
        assert_type(model.logits(files), npt.NDArray[np.float32])
    genai.draw_labels(pixels, model.classify(pixels), dark=True).save("labels.png")
