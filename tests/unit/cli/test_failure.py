"""From an error of the SDK to an exit code and a line for people."""

from __future__ import annotations

import pytest

import genai
from cli.failure import as_failure, describe


@pytest.mark.parametrize(
    ("hresult", "context", "exit_code"),
    [
        (0x80070057, "genai.load", 2),  # a file of the other engine
        (0x80070057, "token id", 2),
        (0x80070057, "generate", 2),  # a token outside the vocabulary
        (0x8007007A, "generate", 2),  # a prompt that is too long
        (0x80070002, "genai.load", 3),
        (0x80070003, "genai.load", 3),
        (0x80070005, "IWinMLRuntime.LoadModelFromFile", 3),
        (0x8007000D, "/m/tokenizer.json", 3),
        (0x80070570, "IWinMLRuntime.LoadModelFromFile", 3),
        (0x80070570, "IWinMLPipelineBuilder.Build", 3),  # a graph that the engine cannot read
        (0x80070032, "IWinMLRuntime.LoadModelFromFile", 3),  # an unsupported file type
        (0x80070057, "IWinMLRuntime.LoadModelFromFile", 3),  # a later shard
        (0x80070032, "genai.load", 3),  # a graph that is no decoder
        (0x80070032, "convert_gguf", 3),
        (0x80070032, "IWinMLPipelineBuilder.Build", 4),
        (0x80070057, "IWinMLPipeline.Run", 4),
        (0x80070057, "llama_decode", 4),
        (0x8007007A, "IWinMLPipeline.Run", 4),
        (0x8007007E, "loading ONNX Runtime", 4),
        (0x8007007E, "genai.load", 4),
        (0x80004005, "generate", 4),
        (0x8007000E, "IWinMLPipelineBuilder.Build", 4),
    ],
)
def test_exit_codes(hresult: int, context: str, exit_code: int) -> None:
    assert as_failure(genai.WinMLError(hresult, context, "the reason")).exit_code == exit_code


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (genai.WinMLError(0x80070002, "genai.load", "no file 'x'"), "no file 'x' (0x80070002)"),
        (genai.WinMLError(0x80004005, "IWinMLPipeline.Run", None), "unspecified failure (0x80004005)"),
        (genai.WinMLError(0x80004005, "", None), "unspecified failure (0x80004005)"),
        (
            genai.WinMLError(0x80070570, "IWinMLRuntime.LoadModelFromFile", "IWinMLRuntime.LoadModel: a.gguf: bad"),
            "a.gguf: bad (0x80070570)",
        ),
        (
            genai.WinMLError(0x80070002, "/m/tokenizer.json", "the folder has no tokenizer.json"),
            "the folder has no tokenizer.json (0x80070002)",
        ),
        (
            genai.WinMLError(0x80070490, "IWinMLRuntime.CreateExecutionTarget", "no GPU; use create_cpu_target()"),
            "no GPU; take --device cpu (0x80070490)",
        ),
        (genai.WinMLError(0x8007000D, "/m/a.json", "no object"), "/m/a.json: no object (0x8007000D)"),
        (genai.WinMLError(0x80070570, "gemma3-270m", "wrong bytes"), "gemma3-270m: wrong bytes (0x80070570)"),
        (
            genai.WinMLError(0x8007007A, "generate", "9 tokens do not fit into 4; load with a larger context_length"),
            "9 tokens do not fit into 4; shorten the prompt or give a larger --context-length (0x8007007A)",
        ),
    ],
)
def test_lines(error: genai.WinMLError, line: str) -> None:
    assert describe(error) == line


def test_what_a_terminal_would_take_for_orders_is_spelled_out() -> None:
    error = genai.WinMLError(0x80070032, "genai.load", "compiled for \x1b[31mred\x9b\nand more\tof it")
    assert describe(error) == "compiled for \\x1b[31mred\\x9b\nand more\tof it (0x80070032)"
