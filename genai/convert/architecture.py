"""What a GGUF says about its decoder, as one frozen record: the llama and gemma3 architectures.

Everything that would change the result and is not implemented (kinds of position scaling, experts, biases, caps) is
refused by the name of its key or tensor, never ignored. Metadata names are those of llama.cpp. Not here: the graph
(`decoder.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .source import ModelSource, invalid, refuse

_GEMMA3_LOCAL_ROPE_BASE = 10000.0
_GEMMA3_PERIOD = 6  # every sixth layer attends to the whole sequence
_GEMMA3_27B_LAYERS = 62  # the one size whose attention is scaled by the width per head, not by the head size
_MAX_LAYERS = 1024
_MAX_CONTEXT = 1 << 22


@dataclass(frozen=True, slots=True)
class DecoderArchitecture:
    """A decoder-only transformer: RMS norms, rotary positions, grouped-query attention, gated feed-forward."""

    name: str
    layer_count: int
    width: int
    """Extent of the residual stream."""
    hidden_width: int
    """Extent inside the feed-forward part."""
    head_count: int
    kv_head_count: int
    head_size: int
    vocabulary_size: int
    context_length: int
    norm_epsilon: float
    rope_base: float
    attention_scale: float
    rope_divisor: float = 1.0
    """Linear scaling: positions of global layers count as so much less."""
    window: int | None = None
    """How many tokens a local layer sees, itself included; None: there are no local layers."""
    window_period: int = 1
    """The last layer of every `window_period` is global."""
    has_rope_factors: bool = False
    """`rope_freqs.weight` divides the rotary frequencies (llama 3.1 and later)."""
    has_output_matrix: bool = True
    """False: the token embedding is also the output matrix."""

    @property
    def is_gemma3(self) -> bool:
        """Norms after attention and feed-forward and of queries and keys, GELU, a scaled embedding."""
        return self.name == "gemma3"

    @property
    def query_width(self) -> int:
        return self.head_count * self.head_size

    @property
    def kv_width(self) -> int:
        return self.kv_head_count * self.head_size

    def is_local(self, layer: int) -> bool:
        """Tell whether a layer attends to the sliding window only."""
        return self.window is not None and (layer + 1) % self.window_period != 0

    def rope_of(self, layer: int) -> tuple[float, float]:
        """Return the base of the rotary frequencies of a layer, and by what all of them are divided."""
        return (_GEMMA3_LOCAL_ROPE_BASE, 1.0) if self.is_local(layer) else (self.rope_base, self.rope_divisor)

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return name and shape of every tensor the architecture consists of."""
        table: dict[str, tuple[int, ...]] = {
            "token_embd.weight": (self.vocabulary_size, self.width),
            "output_norm.weight": (self.width,),
        }
        if self.has_output_matrix:
            table["output.weight"] = (self.vocabulary_size, self.width)
        if self.has_rope_factors:
            table["rope_freqs.weight"] = (self.head_size // 2,)
        for layer in range(self.layer_count):
            table |= {f"blk.{layer}.{name}.weight": shape for name, shape in self._block_shapes().items()}
        return table

    def _block_shapes(self) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {
            "attn_norm": (self.width,),
            "attn_q": (self.query_width, self.width),
            "attn_k": (self.kv_width, self.width),
            "attn_v": (self.kv_width, self.width),
            "attn_output": (self.width, self.query_width),
            "ffn_norm": (self.width,),
            "ffn_gate": (self.hidden_width, self.width),
            "ffn_up": (self.hidden_width, self.width),
            "ffn_down": (self.width, self.hidden_width),
        }
        if self.is_gemma3:
            shapes |= {"attn_q_norm": (self.head_size,), "attn_k_norm": (self.head_size,)}
            shapes |= {"post_attention_norm": (self.width,), "post_ffw_norm": (self.width,)}
        return shapes


def read_architecture(source: ModelSource, context_length: int | None = None) -> DecoderArchitecture:
    """Read and check the record; `context_length` lowers the one of the model, and may not exceed it."""
    name = source.metadata.get("general.architecture")
    if name not in ("llama", "gemma3"):
        raise refuse(source.path, f"the architecture {name!r} is not known; known are 'llama' and 'gemma3'")
    keys = _Keys(source, str(name))
    architecture = _read(keys, source, context_length)
    keys.refuse_leftovers()
    _check_tensors(source, architecture)
    return architecture


def _read(keys: _Keys, source: ModelSource, context_length: int | None) -> DecoderArchitecture:
    embedding = source.shapes.get("token_embd.weight", ())
    if len(embedding) != 2:
        raise invalid(source.path, "there is no matrix token_embd.weight: not a complete language model")
    width, heads = keys.positive("embedding_length"), keys.positive("attention.head_count")
    head_size = keys.positive("attention.key_length", width // heads)
    keys.require("attention.value_length", head_size)
    keys.require("rope.dimension_count", head_size)
    keys.require("vocab_size", embedding[0])
    if head_size % 2:
        raise invalid(source.path, f"the head size {head_size} is odd")
    limit = keys.positive("context_length")
    if context_length is not None and not 1 <= context_length <= limit:
        raise ValueError(f"context_length must be in 1..{limit} for {source.path}, not {context_length}")
    if (context_length or limit) > _MAX_CONTEXT:
        raise refuse(source.path, f"a context of {limit} tokens needs giant rotary tables; pass a context_length")
    layers = keys.positive("block_count")
    if layers > _MAX_LAYERS:
        raise invalid(source.path, f"{layers} layers are implausible")
    is_gemma3 = keys.architecture == "gemma3"
    if is_gemma3:
        keys.require("rope.freq_base_swa", _GEMMA3_LOCAL_ROPE_BASE)
    scale_width = width // heads if is_gemma3 and layers == _GEMMA3_27B_LAYERS else head_size
    return DecoderArchitecture(
        name=keys.architecture,
        layer_count=layers,
        width=width,
        hidden_width=keys.positive("feed_forward_length"),
        head_count=heads,
        kv_head_count=keys.kv_heads(heads),
        head_size=head_size,
        vocabulary_size=embedding[0],
        context_length=context_length or limit,
        norm_epsilon=keys.number("attention.layer_norm_rms_epsilon"),
        rope_base=keys.number("rope.freq_base", 1e6 if is_gemma3 else 10000.0),
        attention_scale=scale_width**-0.5,
        rope_divisor=keys.linear_rope_scaling(),
        window=keys.positive("attention.sliding_window") if is_gemma3 else None,
        window_period=keys.positive("attention.sliding_window_pattern", _GEMMA3_PERIOD) if is_gemma3 else 1,
        has_rope_factors="rope_freqs.weight" in source,
        has_output_matrix="output.weight" in source,
    )


class _Keys:
    """The keys under the name of the architecture, each read at most once; what is left was not understood."""

    # Keys that may be there with the value that means "off".
    _OFF: Mapping[str, object] = {
        "expert_count": 0,
        "expert_used_count": 0,
        "attention.causal": True,
    }

    def __init__(self, source: ModelSource, architecture: str) -> None:
        prefix = architecture + "."
        self.architecture = architecture
        self._path = source.path
        self._values = {key[len(prefix) :]: source.metadata[key] for key in source.metadata if key.startswith(prefix)}

    def positive(self, key: str, default: int | None = None) -> int:
        value = self._values.pop(key, default)
        if value is None:
            raise invalid(self._path, f"the key {self.architecture}.{key} is missing")
        if isinstance(value, bool) or not isinstance(value, int):
            raise refuse(self._path, f"{self.architecture}.{key} is not one whole number for all layers")
        if not 1 <= value < 1 << 31:
            raise invalid(self._path, f"{self.architecture}.{key} is {value}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._values.pop(key, default)
        if not isinstance(value, float) or not 0 < value < 1e9:
            raise invalid(self._path, f"{self.architecture}.{key} is {value!r}, not a positive number")
        return value

    def require(self, key: str, value: float) -> None:
        """Take a key that may be absent and has one value that can be converted."""
        found = self._values.pop(key, value)
        if found != value:
            raise refuse(self._path, f"{self.architecture}.{key} is {found!r}; only {value!r} can be converted here")

    def linear_rope_scaling(self) -> float:
        """Return the divisor of all positions; other kinds of scaling are refused."""
        kind = self._values.pop("rope.scaling.type", "linear")
        if kind not in ("none", "linear"):
            raise refuse(self._path, f"{self.architecture}.rope.scaling.type is {kind!r}; only 'linear' is known")
        for key in ("rope.scaling.original_context_length", "rope.scaling.finetuned"):  # for the other kinds
            self._values.pop(key, None)
        old_key = self.number("rope.scale_linear", 1.0)
        factor = self.number("rope.scaling.factor", old_key)
        return factor if kind == "linear" else 1.0

    def kv_heads(self, heads: int) -> int:
        count = self.positive("attention.head_count_kv", heads)
        if heads % count:
            raise invalid(self._path, f"{heads} heads cannot share {count} key-value heads")
        return count

    def refuse_leftovers(self) -> None:
        left = {key: value for key, value in self._values.items() if key not in self._OFF or self._OFF[key] != value}
        if left:
            named = ", ".join(f"{self.architecture}.{key}" for key in sorted(left))
            raise refuse(self._path, f"the conversion does not know what to do with {named}")


def _check_tensors(source: ModelSource, architecture: DecoderArchitecture) -> None:
    """Refuse tensors that are not part of the architecture, and complain about missing or misshapen ones."""
    expected, found = architecture.tensor_shapes(), source.shapes
    unknown = sorted(set(found) - set(expected))
    if unknown:
        raise refuse(source.path, f"the conversion does not know what to do with {_some(unknown)}")
    missing = [name for name in expected if name not in found]
    if missing:
        raise invalid(source.path, f"tensors are missing: {_some(missing)}")
    for name, shape in expected.items():
        if found[name] != shape:
            raise invalid(source.path, f"the tensor {name} has the shape {found[name]}, not {shape}")


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
