"""`genai.load_speech`: from a folder or a catalog name to a model that recognises speech."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from winml_lite import Runtime, WinMLError

from .codes import E_INVALIDARG, INVALID_DATA
from .model_source import Progress, build_options, naming, resolve
from .placement import Target, placement
from .session_settings import SessionSettings, session_settings
from .speech import SpeechModel
from .tokenizer import Tokenizer
from .whisper_decoding import WhisperDecoder
from .whisper_folder import WhisperFolder
from .whisper_stages import BuiltStage, WhisperParts, WhisperStages, declare_whisper_state

_CONTEXT = "genai.load_speech"


@naming(_CONTEXT)
def load_speech(
    source: str | os.PathLike[str] = "whisper-tiny.en",
    *,
    threads: int | None = None,
    target: Target = None,
    provider: str | None = None,
    provider_options: Mapping[str, str] | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> SpeechModel:
    """Load a model that recognises speech.

    `source` is a name of the catalog, or a folder that `winml-lite convert` has made of a CTranslate2 Whisper model.

    threads, target, provider, provider_options, offline, progress: as for `genai.load`. The first use of voice activity
        may fetch its model, too, and then tells "download silero-vad".

    Raises WinMLError: 0x80070002 for a missing folder or file, 0x80070570 for an unreadable one, 0x80070032 for a
    Whisper model in another layout, 0x80070057 for a model of another kind, 0x8007000D for files that contradict each
    other.
    """
    place = placement(target, provider, provider_options)
    options = build_options(None, threads, place, ())
    name, path = resolve(source, "ort", offline, progress, ("speech",))
    if path.is_file():
        text = f"{path} is a file; a speech recognition model is a folder: name that, here perhaps {path.parent}"
        raise WinMLError(E_INVALIDARG, _CONTEXT, text)
    folder = WhisperFolder.open(path)
    runtime = Runtime()
    try:
        decoder = _decoder(runtime, folder, session_settings(options, folder.path))
    except BaseException:
        runtime.close()
        raise
    return SpeechModel(name, str(path), decoder, Tokenizer.from_file(folder.tokenizer_path), (offline, progress))


def _decoder(runtime: Runtime, folder: WhisperFolder, session: SessionSettings) -> WhisperDecoder:
    """Build the two stages and compose them."""
    encoder = _stage(runtime, folder.encoder_path, session)
    decoder = _stage(runtime, folder.decoder_path, session)
    session.check([encoder.stage, decoder.stage])
    parts = WhisperParts(runtime, encoder, decoder, runtime.create_cpu_target())
    stages = WhisperStages(parts, filler=folder.tokens.end)
    for what, declared, found in (
        ("mel bands", folder.shape.mel_count, stages.mel_count),
        ("logits", folder.shape.vocabulary_size, stages.vocabulary_size),
    ):
        if found not in (0, declared):
            stages.close()
            raise WinMLError(INVALID_DATA, _CONTEXT, f"{folder.path} has {found} {what}, its settings say {declared}")
    return WhisperDecoder(stages, folder.tokens, folder.shape.position_count)


def _stage(runtime: Runtime, file: Path, session: SessionSettings) -> BuiltStage:
    with runtime.load_model(file) as model, runtime.create_pipeline_builder() as builder:
        stage = builder.add_model_stage(model, session.make_target(runtime), file.stem)
        session.prepare(stage)
        declare_whisper_state(model, stage)
        return BuiltStage(builder.build(), stage)
