"""Text from local models: `genai.load` for the short road, `genai.tasks` and `genai.runtime` for the long one.

Names are imported at first use, so that `import genai` costs next to nothing and loads no engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from winml_lite import NotSupportedError as NotSupportedError
    from winml_lite import WinMLError as WinMLError

    from .audio import Audio as Audio
    from .audio import audio_blocks as audio_blocks
    from .audio import read_audio as read_audio
    from .audio import write_audio as write_audio
    from .cancellation import CancellationSource as CancellationSource
    from .chat import Chat as Chat
    from .chat_message import ChatMessage as ChatMessage
    from .chat_parts import ChatMedia as ChatMedia
    from .chat_reply import ChatReply as ChatReply
    from .chat_reply import ToolCall as ToolCall
    from .chat_reply import ToolCallStatus as ToolCallStatus
    from .classifier import ImageClassifier as ImageClassifier
    from .classifier import ImageLabel as ImageLabel
    from .classifier_loading import load_classifier as load_classifier
    from .constraint import TokenConstraint as TokenConstraint
    from .decoder import TokenizerDecoder as TokenizerDecoder
    from .embedding import EmbeddingModel as EmbeddingModel
    from .embedding_loading import load_embedding as load_embedding
    from .label_drawing import draw_labels as draw_labels
    from .language_model import LanguageModel as LanguageModel
    from .loading import load as load
    from .options import TextGenerationOptions as TextGenerationOptions
    from .perplexity import Perplexity as Perplexity
    from .region_finder import SpeechRegion as SpeechRegion
    from .region_finder import SpeechRegionOptions as SpeechRegionOptions
    from .results import TextGenerationFinishReason as TextGenerationFinishReason
    from .results import TextGenerationResult as TextGenerationResult
    from .results import TextGenerationTimings as TextGenerationTimings
    from .results import TokenLogprob as TokenLogprob
    from .scoring import ContinuationScore as ContinuationScore
    from .speculative_statistics import TextGenerationSpeculativeStatistics as TextGenerationSpeculativeStatistics
    from .speech import SpeechModel as SpeechModel
    from .speech_loading import load_speech as load_speech
    from .text_stream import TextStream as TextStream
    from .tokenizer import Tokenizer as Tokenizer
    from .transcript import Transcript as Transcript
    from .transcript import TranscriptSegment as TranscriptSegment
    from .transcript import TranscriptTimings as TranscriptTimings
    from .transcript_stream import SpeechStream as SpeechStream
    from .transcription_options import TranscriptionOptions as TranscriptionOptions
    from .turn_stream import ChatStream as ChatStream
    from .voice_activity import VoiceActivity as VoiceActivity
    from .voice_activity import speech_regions as speech_regions
    from .whisper_folder import WhisperFolder as WhisperFolder

__version__ = "0.1.0"

_HOMES = {
    "Audio": ".audio",
    "CancellationSource": ".cancellation",
    "Chat": ".chat",
    "ContinuationScore": ".scoring",
    "EmbeddingModel": ".embedding",
    "ChatMedia": ".chat_parts",
    "ChatMessage": ".chat_message",
    "ChatReply": ".chat_reply",
    "ChatStream": ".turn_stream",
    "ImageClassifier": ".classifier",
    "ImageLabel": ".classifier",
    "LanguageModel": ".language_model",
    "NotSupportedError": "winml_lite",
    "Perplexity": ".perplexity",
    "SpeechModel": ".speech",
    "SpeechRegion": ".region_finder",
    "SpeechRegionOptions": ".region_finder",
    "SpeechStream": ".transcript_stream",
    "TextGenerationFinishReason": ".results",
    "TextGenerationOptions": ".options",
    "TextGenerationResult": ".results",
    "TextGenerationSpeculativeStatistics": ".speculative_statistics",
    "TextGenerationTimings": ".results",
    "TextStream": ".text_stream",
    "TokenConstraint": ".constraint",
    "TokenLogprob": ".results",
    "Tokenizer": ".tokenizer",
    "TokenizerDecoder": ".decoder",
    "ToolCall": ".chat_reply",
    "ToolCallStatus": ".chat_reply",
    "Transcript": ".transcript",
    "TranscriptSegment": ".transcript",
    "TranscriptTimings": ".transcript",
    "TranscriptionOptions": ".transcription_options",
    "VoiceActivity": ".voice_activity",
    "WhisperFolder": ".whisper_folder",
    "WinMLError": "winml_lite",
    "audio_blocks": ".audio",
    "draw_labels": ".label_drawing",
    "load": ".loading",
    "load_classifier": ".classifier_loading",
    "load_embedding": ".embedding_loading",
    "load_speech": ".speech_loading",
    "read_audio": ".audio",
    "speech_regions": ".voice_activity",
    "write_audio": ".audio",
}

__all__ = [
    "Audio",
    "CancellationSource",
    "Chat",
    "ChatMedia",
    "ChatMessage",
    "ChatReply",
    "ChatStream",
    "ContinuationScore",
    "EmbeddingModel",
    "ImageClassifier",
    "ImageLabel",
    "LanguageModel",
    "NotSupportedError",
    "Perplexity",
    "SpeechModel",
    "SpeechRegion",
    "SpeechRegionOptions",
    "SpeechStream",
    "TextGenerationFinishReason",
    "TextGenerationOptions",
    "TextGenerationResult",
    "TextGenerationSpeculativeStatistics",
    "TextGenerationTimings",
    "TextStream",
    "TokenConstraint",
    "TokenLogprob",
    "Tokenizer",
    "TokenizerDecoder",
    "ToolCall",
    "ToolCallStatus",
    "Transcript",
    "TranscriptSegment",
    "TranscriptTimings",
    "TranscriptionOptions",
    "VoiceActivity",
    "WhisperFolder",
    "WinMLError",
    "audio_blocks",
    "draw_labels",
    "load",
    "load_classifier",
    "load_embedding",
    "load_speech",
    "read_audio",
    "speech_regions",
    "write_audio",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "convert", "runtime", "tasks"])
