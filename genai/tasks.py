"""Text generation and speech recognition by the names of `windowsml.tasks`: the long road, sessions bound to their
thread (genai §0.2).
"""

from __future__ import annotations

from .cancellation import CancellationSource
from .chat_results import (
    ChatCompletionEvent,
    ChatCompletionPromptCacheMode,
    ChatCompletionPromptCacheUse,
    ChatCompletionResult,
    ChatMediaBinding,
)
from .chat_session import ChatCompletionSession
from .chat_stream import ChatCompletionStream
from .chat_task import ChatCompletionTask
from .composition_parts import TextGenerationPhaseBinding
from .configuration import TextGenerationConfiguration
from .constraint import TokenConstraint
from .factory import Tasks, TextGenerationTask
from .messages import (
    ChatCompletionContentPart,
    ChatCompletionContinuation,
    ChatCompletionEnableThinking,
    ChatCompletionEventType,
    ChatCompletionFinishReason,
    ChatCompletionFormatterMode,
    ChatCompletionMessage,
    ChatCompletionParallelToolCalls,
    ChatCompletionRequest,
    ChatCompletionResponseFormat,
    ChatCompletionTemplateValue,
    ChatCompletionTemplateValueType,
    ChatCompletionTool,
    ChatCompletionToolCall,
    ChatCompletionToolChoice,
    ChatRole,
)
from .options import TextGenerationOptions
from .results import (
    TextGenerationCapabilities,
    TextGenerationConfigurationMode,
    TextGenerationDecodeInputMode,
    TextGenerationExecutionProfile,
    TextGenerationFinishReason,
    TextGenerationOutputKind,
    TextGenerationPipelinePhase,
    TextGenerationResult,
    TextGenerationSequenceDisclosure,
    TextGenerationSequenceState,
    TextGenerationSessionState,
    TextGenerationTimings,
    TextGenerationUpdate,
    TokenLogprob,
)
from .segments import TextGenerationSegment, TextGenerationSegmentKind
from .session import TextGenerationSession
from .speculative_statistics import TextGenerationSpeculativeMethod, TextGenerationSpeculativeStatistics
from .speech_configuration import (
    AutomaticSpeechRecognitionConfiguration,
    WhisperAutomaticSpeechRecognitionBindings,
)
from .speech_live import (
    AutomaticSpeechRecognitionLiveInput,
    AutomaticSpeechRecognitionLiveTranscription,
)
from .speech_results import (
    AutomaticSpeechRecognitionChunkAcceptance,
    AutomaticSpeechRecognitionFinishReason,
    AutomaticSpeechRecognitionReadStatus,
    AutomaticSpeechRecognitionResult,
    AutomaticSpeechRecognitionSessionState,
    AutomaticSpeechRecognitionUpdate,
    AutomaticSpeechRecognitionWaveformMetadata,
)
from .speech_session import (
    AutomaticSpeechRecognitionSession,
)
from .speech_stream import (
    AutomaticSpeechRecognitionStream,
)
from .speech_task import (
    AutomaticSpeechRecognitionTask,
)
from .stream import TextGenerationStream

__all__ = [
    "AutomaticSpeechRecognitionChunkAcceptance",
    "AutomaticSpeechRecognitionConfiguration",
    "AutomaticSpeechRecognitionFinishReason",
    "AutomaticSpeechRecognitionLiveInput",
    "AutomaticSpeechRecognitionLiveTranscription",
    "AutomaticSpeechRecognitionReadStatus",
    "AutomaticSpeechRecognitionResult",
    "AutomaticSpeechRecognitionSession",
    "AutomaticSpeechRecognitionSessionState",
    "AutomaticSpeechRecognitionStream",
    "AutomaticSpeechRecognitionTask",
    "AutomaticSpeechRecognitionUpdate",
    "AutomaticSpeechRecognitionWaveformMetadata",
    "CancellationSource",
    "ChatCompletionContentPart",
    "ChatCompletionContinuation",
    "ChatCompletionEnableThinking",
    "ChatCompletionEvent",
    "ChatCompletionEventType",
    "ChatCompletionFinishReason",
    "ChatCompletionFormatterMode",
    "ChatCompletionMessage",
    "ChatCompletionParallelToolCalls",
    "ChatCompletionPromptCacheMode",
    "ChatCompletionPromptCacheUse",
    "ChatCompletionRequest",
    "ChatCompletionResponseFormat",
    "ChatCompletionResult",
    "ChatCompletionSession",
    "ChatCompletionStream",
    "ChatCompletionTask",
    "ChatCompletionTemplateValue",
    "ChatCompletionTemplateValueType",
    "ChatCompletionTool",
    "ChatCompletionToolCall",
    "ChatCompletionToolChoice",
    "ChatMediaBinding",
    "ChatRole",
    "Tasks",
    "TextGenerationCapabilities",
    "TextGenerationConfiguration",
    "TextGenerationConfigurationMode",
    "TextGenerationDecodeInputMode",
    "TextGenerationExecutionProfile",
    "TextGenerationFinishReason",
    "TextGenerationOptions",
    "TextGenerationOutputKind",
    "TextGenerationPhaseBinding",
    "TextGenerationPipelinePhase",
    "TextGenerationResult",
    "TextGenerationSegment",
    "TextGenerationSegmentKind",
    "TextGenerationSequenceDisclosure",
    "TextGenerationSequenceState",
    "TextGenerationSession",
    "TextGenerationSessionState",
    "TextGenerationSpeculativeMethod",
    "TextGenerationSpeculativeStatistics",
    "TextGenerationStream",
    "TextGenerationTask",
    "TextGenerationTimings",
    "TextGenerationUpdate",
    "TokenConstraint",
    "TokenLogprob",
    "WhisperAutomaticSpeechRecognitionBindings",
]
