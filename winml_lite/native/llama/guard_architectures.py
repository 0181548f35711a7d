"""Rules of single architectures that libllama asserts when it builds their graphs (llama.cpp, `src/models/`).

Each table names the architectures that end the process over one kind of value; one that is not listed is left to
libllama. The rules that hold for all of them are in `guard.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...errors import NOT_SUPPORTED, WinMLError

if TYPE_CHECKING:
    from .guard import Header

_BESIDE_ANOTHER = frozenset(("dflash", "eagle3", "gemma4-assistant"))
"""Draft models: they compute on the state of the model that they draft for."""

_ONE_HEAD_SIZE = frozenset(
    """afmoe apertus arcee arctic baichuan bailingmoe2 bitnet bloom chameleon chatglm codeshell cogvlm cohere2
    cohere2moe command-r dbrx deci deepseek dots1 dream ernie4_5 ernie4_5-moe exaone falcon glm4 glm4moe gpt2
    gptneox granite granite_swa granitehybrid granitemoe graniteswitch grok grovemoe hunyuan-dense hunyuan-moe
    hunyuan_vl hy_v3 internlm2 jais jais2 laguna llada llada-moe llama llama-embed llama4 maincoder mellum
    minicpm minimax-01 minimax-m2 minimax-m3 mistral3 mpt muse-glimmer nanbeige nemotron nemotron_h
    nemotron_h_moe olmo olmo2 olmoe openelm orion paddleocr pangu-embedded phi2 phi3 phimoe plamo pockettts qwen
    qwen2 qwen2moe qwen2vl qwen3 qwen35 qwen35moe qwen3moe qwen3next qwen3tts qwen3vl qwen3vlmoe qwen4exp refact
    rnd1 seed_oss smallthinker smollm3 spark2_5 stablelm starcoder starcoder2 xverse""".split()
)
"""Keys and values of a head are equally long."""

_WHOLE_HEAD_ROTATES = frozenset(
    """apertus arcee arctic baichuan chameleon codeshell cogvlm cohere2moe dbrx deci deepseek dots1 dream
    ernie4_5 ernie4_5-moe exaone exaone-moe exaone4 falcon granite granite_swa granitemoe graniteswitch grok
    grovemoe hunyuan-dense hunyuan-moe hunyuan_vl hy_v3 internlm2 jais2 llada llada-moe llama llama-embed llama4
    maincoder mellum minicpm mistral3 olmo olmo2 olmoe orion paddleocr pangu-embedded plamo pockettts qwen2
    qwen2moe qwen2vl qwen3 qwen3moe qwen3tts qwen3vl qwen3vlmoe rnd1 seed_oss smallthinker smollm3 starcoder2
    talkie xverse""".split()
)
"""Rotary positions turn every number of a head."""

_MAY_NOT_ROTATE = frozenset(
    """arwkv7 bloom clip glm5-next gpt2 gptj granitehybrid jais jamba jina-bert-v2 kimi-k3 kimi-linear mamba mamba2 mpt
    nemotron_h nemotron_h_moe refact rwkv6 rwkv6qwen2 rwkv7 t5 t5encoder wavtokenizer-dec""".split()
)
"""No rotary positions in some or all files; elsewhere turning no number of a head never ends."""

_EXPERTS_ONLY = frozenset(("bailingmoe2", "grovemoe", "lfm2moe", "llada-moe", "smallthinker"))

_ROPE_SECTIONS = frozenset(
    ("paddleocr", "qwen2vl", "qwen35", "qwen35moe", "qwen3tts", "qwen3vl", "qwen3vlmoe", "qwen4exp")
)
"""A position has several axes, and each has its share of a head."""

_WINDOW_PERIOD = {
    "cohere2": 4,
    "exaone-moe": 4,
    "gemma2": 2,
    "gemma3n": 5,
    "gemma4": 0,
    "gpt-oss": 2,
    "granite_swa": 0,
    "maple": 0,
    "mimo2": 0,
    "muse-glimmer": 4,
    "spark2_5": 0,
    "step35": 0,
}
"""Some layer has a sliding window: the last of so many layers has none; 0 = the file says it for each layer."""
_WINDOW_PERIOD_IF_WINDOW = {"afmoe": 4, "exaone4": 4, "gemma3": 6, "llama4": 4, "mellum": 4, "olmo2": 4, "plamo3": 8}
"""The same, unless the file has no window."""
_FIRST_IS_DENSE = {"cohere2moe": 4, "laguna": 4, "smallthinker": 4}
"""The same, but it is the first of so many layers that has none."""

_COMPRESSED_KEYS = ("deepseek2", "mistral4")
_GROUPED_STATE = frozenset(
    "falcon-h1 granitehybrid mamba2 nemotron_h nemotron_h_moe qwen35 qwen35moe qwen3next qwen4exp".split()
)


def check_architecture(header: Header, architecture: str) -> None:
    """Refuse values that the graph of this architecture cannot be built with."""
    if architecture == "clip":
        text = f"{header.path} is a projector, it encodes pictures or sound for a model: give it beside that model"
        raise WinMLError(NOT_SUPPORTED, "IWinMLPipelineBuilder.Build", f"{text} (genai.load(..., projector=...))")
    if architecture in _BESIDE_ANOTHER:
        text = f"{header.path} is a draft model ({architecture}): it runs only beside the model that it drafts for"
        raise WinMLError(NOT_SUPPORTED, "IWinMLPipelineBuilder.Build", text)
    if architecture in _EXPERTS_ONLY and not header.count("expert_count", 0, 1 << 16):
        header.refuse(f"{architecture} needs experts, but expert_count is 0")
    _check_head_sizes(header, architecture)
    if architecture in _ROPE_SECTIONS:
        _check_sections(header)
    _check_windows(header, architecture)
    _check_state(header, architecture)
    _check_single_rules(header, architecture)


def _check_head_sizes(header: Header, architecture: str) -> None:
    heads = header.counts("attention.head_count", 0, 1 << 16)
    if not heads or not heads[0]:
        return
    usual = header.count("embedding_length", 1, 0x7FFFFFFF) // heads[0]
    key = header.count("attention.key_length", 0, 1 << 16) or usual
    value = header.count("attention.value_length", 0, 1 << 16) or usual
    for suffix in ("", "_swa"):
        own_key = header.count(f"attention.key_length{suffix}", 0, 1 << 16) or key
        own_value = header.count(f"attention.value_length{suffix}", 0, 1 << 16) or value
        if architecture in _ONE_HEAD_SIZE and own_key != own_value:
            header.refuse(f"attention.key_length{suffix} is {own_key}, value_length{suffix} {own_value}, not the same")
        rotated = header.counts(f"rope.dimension_count{suffix}", 0, 1 << 16)
        if architecture not in _MAY_NOT_ROTATE and 0 in rotated:
            header.refuse(f"rope.dimension_count{suffix} is 0, not an even number from 2 up")
        if architecture in _WHOLE_HEAD_ROTATES and any(count != own_value for count in rotated):
            header.refuse(f"rope.dimension_count{suffix} is {rotated[0]}, not the size of a head, {own_value}")


def _check_sections(header: Header) -> None:
    sections = header.counts("rope.dimension_sections", 0, 1 << 16)
    if not any(sections[:3]):
        header.refuse(f"rope.dimension_sections is {list(sections)}, no axis has a share of a head")


def _check_windows(header: Header, architecture: str) -> None:
    dense_first = architecture in _FIRST_IS_DENSE
    period = _WINDOW_PERIOD.get(architecture, _FIRST_IS_DENSE.get(architecture))
    if period is None and header.count("attention.sliding_window", 0, 0x7FFFFFFF):
        period = _WINDOW_PERIOD_IF_WINDOW.get(architecture)
    if period is None:
        return
    layers = header.count("block_count", 1, 512) - header.count("nextn_predict_layers", 0, 512)
    given = header.values.get(f"{header.prefix}attention.sliding_window_pattern")
    if isinstance(given, np.ndarray):
        has_window = bool(given[: max(layers, 0)].any())
    else:
        period = int(given) if isinstance(given, int) else period
        has_window = period == 0 or (period > 1 and (layers > 1 or not dense_first))
    if not has_window:
        header.refuse("attention.sliding_window_pattern gives no layer a window")


def _check_state(header: Header, architecture: str) -> None:
    """Recurrent layers whose heads form groups."""
    if architecture not in _GROUPED_STATE:
        return
    groups = header.count("ssm.group_count", 0, 1 << 16)
    heads = header.count("ssm.time_step_rank", 0, 1 << 16)
    inner = header.count("ssm.inner_size", 0, 0x7FFFFFFF)
    if not groups or not heads or heads % groups or inner % heads or inner % groups:
        header.refuse(f"ssm: {inner} numbers do not form {heads} heads in {groups} groups")


def _check_single_rules(header: Header, architecture: str) -> None:
    layers = header.count("block_count", 1, 512)
    width = header.count("embedding_length", 0, 0x7FFFFFFF)
    if architecture == "jamba" and header.count("ssm.inner_size", 0, 0x7FFFFFFF) != 2 * width:
        header.refuse("ssm.inner_size is not twice embedding_length")
    if architecture == "gemma4" and layers - header.count("attention.shared_kv_layers", 0, 512) < 2:
        header.refuse("attention.shared_kv_layers leaves fewer than 2 layers of their own")
    if architecture == "nanbeige":
        header.counts("num_loops", 1, 512 // max(layers, 1))
    if architecture == "wavtokenizer-dec":
        header.count("posnet.block_count", 0, layers)
        header.count("convnext.block_count", 0, layers)
    if architecture in _COMPRESSED_KEYS:
        key = header.count("attention.key_length_mla", 0, 1 << 16) or header.count("attention.key_length", 0, 1 << 16)
        rotated = header.counts("rope.dimension_count", 0, 1 << 16)
        if key and rotated and rotated[0] >= key:
            header.refuse(f"rope.dimension_count is {rotated[0]}, not less than the size of a key, {key}")
        scale = header.values.get(f"{header.prefix}attention.temperature_scale", 0)
        if scale and not header.count("attention.temperature_length", 0, 0x7FFFFFFF):
            header.refuse("attention.temperature_scale is set, but attention.temperature_length is 0")
