"""Whisper and a language model in one pipeline: the language model reads along and says how likely each word is.

    python examples/speech_pipeline.py RECORDING MODEL.gguf [WHISPER_FOLDER]

      decoder (ONNX)       hand over (Python)          reader (GGUF)
    token ──logits──► likeliest token ──ids of the other vocabulary──► logits: what may come next
      ▲                       │
      └───────────────────────┘ is the input of the next iteration

Each run of the pipeline is one token of the transcript. Before it, another pipeline hears up to 30 seconds of the
recording: features (Python) ──► encoder (ONNX). WHISPER_FOLDER is what `winml-lite convert` writes; by default that of
`whisper-tiny.en`. A word that the language model finds unlikely may be misheard.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import genai
from genai import WhisperFolder
from winml_lite import PipelineBuilder, Runtime, Stage, TensorDataType, Vocabulary

FLOAT32, INT64 = TensorDataType.FLOAT32, TensorDataType.INT64
CONTEXT_LENGTH = 1024
Ids = npt.NDArray[np.int64]


def hear(runtime: Runtime, whisper: WhisperFolder, samples: npt.NDArray[np.float32]) -> dict[str, Any]:
    """Return what the encoder gives for a sound, by name."""
    builder = runtime.create_pipeline_builder()
    processor = runtime.create_processor(
        whisper.features, [(FLOAT32, (None,))], [(FLOAT32, (1, whisper.shape.mel_count, 3000))]
    )
    features = builder.add_processor_stage(processor, name="features")
    encoder = builder.add_model_stage(runtime.load_model(whisper.encoder_path), name="encoder")
    builder.connect(features, 0, encoder, 0)
    names = encoder_names(runtime, whisper)
    for index in range(len(names)):
        encoder.request_output(index)
    pipeline = builder.build()
    features.bind_input(0, runtime.tensor_from_numpy(samples))
    pipeline.run()
    return {name: encoder.output(index) for index, name in enumerate(names)}


def encoder_names(runtime: Runtime, whisper: WhisperFolder) -> list[str]:
    """Return the names of the encoder's outputs."""
    with runtime.load_model(whisper.encoder_path) as model:
        return [model.ort_schema().output_name(index) for index in range(model.schema().output_count)]


def add_decoder(builder: PipelineBuilder, runtime: Runtime, whisper: WhisperFolder, heard: dict[str, Any]) -> Stage:
    """Add Whisper's decoder: its own cache is state, the other inputs are what was heard."""
    model = runtime.load_model(whisper.decoder_path)
    schema, names = model.schema(), model.ort_schema()
    outputs = {names.output_name(index): index for index in range(schema.output_count)}
    stage = builder.add_model_stage(model, name="decoder")
    for index in range(schema.input_count):
        present = names.input_name(index).replace("past_key_values", "present")
        if present in heard:
            stage.bind_input(index, heard[present])
        elif present in outputs:
            stage.add_state_tensor_pair(index, outputs[present])
    return stage


def handing_over(
    whisper: WhisperFolder, tokenizer: genai.Tokenizer, vocabulary: Vocabulary
) -> Callable[[npt.NDArray[np.float32]], tuple[Ids, Ids]]:
    """Return the function between the two models: it chooses the next token, and spells it for the other model."""
    tokens = whisper.tokens
    known = {piece: token_id for token_id, piece in enumerate(vocabulary.pieces())}
    said: list[int] = []

    def hand_over(logits: npt.NDArray[np.float32]) -> tuple[Ids, Ids]:
        row = logits[0, -1].copy()
        row[list(tokens.suppress) if said else [*tokens.suppress, *tokens.suppress_at_begin]] = -np.inf
        token = int(row.argmax())
        said.append(token)
        piece = b"\n" if token == tokens.end else tokenizer.token_bytes(token)
        # The same bytes may be one token there, or several; each byte is one in any case.
        ids = [known[piece]] if piece in known else [known[bytes([byte])] for byte in piece]
        return np.array([[token]]), np.array([ids])

    return hand_over


def connect(
    runtime: Runtime,
    builder: PipelineBuilder,
    decoder: Stage,
    hand_over: Callable[..., tuple[Ids, Ids]],
    vocabulary_size: int,
    reader_path: str,
) -> tuple[Stage, Stage]:
    """Add the two stages behind the decoder, and return them."""
    ports = [(FLOAT32, (1, 1, vocabulary_size))], [(INT64, (1, 1)), (INT64, (1, None))]
    between = builder.add_processor_stage(runtime.create_processor(hand_over, *ports), name="hand over")
    reader = builder.add_model_stage(runtime.load_model(reader_path), name="reader")
    reader.set_sequence_capacity_hint(CONTEXT_LENGTH)
    builder.connect(decoder, 0, between, 0)
    builder.connect(between, 1, reader, 0)
    builder.connect_next_iteration(between, 0, decoder, 0)
    between.request_output(0)
    between.request_output(1)
    reader.request_output(0)
    return between, reader


def judge(runtime: Runtime, whisper: WhisperFolder, samples: npt.NDArray[np.float32], reader_path: str) -> None:
    """Print each token of the transcript, and what the language model makes of it."""
    with Vocabulary.from_file(reader_path) as vocabulary, genai.Tokenizer.from_file(whisper.tokenizer_path) as words:
        builder = runtime.create_pipeline_builder()
        decoder = add_decoder(builder, runtime, whisper, hear(runtime, whisper, samples))
        hand_over = handing_over(whisper, words, vocabulary)
        between, reader = connect(runtime, builder, decoder, hand_over, whisper.shape.vocabulary_size, reader_path)
        pipeline = builder.build()
        prompt = whisper.tokens.prompt("en")
        decoder.bind_input(0, runtime.tensor_from_numpy(np.array([prompt], np.int64)))
        expected: npt.NDArray[np.float64] | None = None
        for _ in range(whisper.shape.position_count - len(prompt)):
            pipeline.run()
            token, ids = int(between.output(0).to_numpy()[0, 0]), between.output(1).to_numpy()[0]
            if token == whisper.tokens.end:
                break
            chance = "" if expected is None else f"{expected[int(ids[0])]:.1%}"
            print(f"{chance:>7}  {words.token_bytes(token).decode('utf-8', 'replace')!r}")
            logits = reader.output(0).to_numpy().reshape(-1)[-vocabulary.token_count :].astype(np.float64)
            expected = np.exp(logits - logits.max())
            expected /= expected.sum()


def main() -> None:
    """Judge the transcript of the first 30 seconds of a recording."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recording", metavar="RECORDING", help="a sound file: WAV, FLAC, OGG, MP3")
    parser.add_argument("model", metavar="MODEL.gguf", help="the language model that reads along")
    parser.add_argument(
        "folder",
        nargs="?",
        metavar="WHISPER_FOLDER",
        help="what `winml-lite convert` writes; default: that of whisper-tiny.en",
    )
    given = parser.parse_args()
    if Path(given.model).suffix != ".gguf":
        parser.error(f"{given.model} is no .gguf file")
    folder = given.folder
    if folder is None:
        with genai.load_speech() as model:
            folder = model.file
    samples = next(genai.audio_blocks(given.recording, 16000, 30.0), np.zeros(0, np.float32))
    with Runtime() as runtime:
        judge(runtime, WhisperFolder.open(folder), samples, given.model)


if __name__ == "__main__":
    main()
