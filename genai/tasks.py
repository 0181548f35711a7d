"""Text generation by the names of `windowsml.tasks`: the long road, sessions bound to their thread (genai §0.2)."""

from __future__ import annotations

from .cancellation import CancellationSource
from .configuration import TextGenerationConfiguration, TextGenerationPhaseBinding
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
)
from .session import TextGenerationSession
from .stream import TextGenerationStream

__all__ = [
    "CancellationSource",
    "ChatCompletionContentPart",
    "ChatCompletionContinuation",
    "ChatCompletionEnableThinking",
    "ChatCompletionEventType",
    "ChatCompletionFinishReason",
    "ChatCompletionFormatterMode",
    "ChatCompletionMessage",
    "ChatCompletionParallelToolCalls",
    "ChatCompletionRequest",
    "ChatCompletionResponseFormat",
    "ChatCompletionTemplateValue",
    "ChatCompletionTemplateValueType",
    "ChatCompletionTool",
    "ChatCompletionToolCall",
    "ChatCompletionToolChoice",
    "ChatRole",
    "Tasks",
    "TextGenerationCapabilities",
    "TextGenerationConfiguration",
    "TextGenerationConfigurationMode",
    "TextGenerationExecutionProfile",
    "TextGenerationFinishReason",
    "TextGenerationOptions",
    "TextGenerationOutputKind",
    "TextGenerationPhaseBinding",
    "TextGenerationPipelinePhase",
    "TextGenerationResult",
    "TextGenerationSequenceDisclosure",
    "TextGenerationSequenceState",
    "TextGenerationSession",
    "TextGenerationSessionState",
    "TextGenerationStream",
    "TextGenerationTask",
    "TextGenerationTimings",
    "TextGenerationUpdate",
    "TokenConstraint",
]
