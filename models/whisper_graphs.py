"""The two ONNX graphs of the scripted Whisper model: what is heard becomes events, and events become tokens.

Here: `encoder_graph` and `decoder_graph`. Not here: what the model says, its vocabulary and its folder
(`whisper_models.py`).

Encoder: every slot of 0.2 s is silent, or sounds in the loudest of eight bands. Slots that follow each other with the
same band are one tone: a start time, three pieces of a word, an end time (left out for a tone that the end of the
window cuts off). These events are numbers; the cross-attention cache carries them in digits: layer 0 the high ones,
layer 1 the low ones, keys with the times and values without.

Decoder: the cache of each layer holds the tokens so far in digits too, so both layers, keys and values are needed to
read them back. How many of them follow the last `<|startoftranscript|>` tells which event comes next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from .onnx_models import FLOAT, INT64, _constant, _model, _port

HEADS, HEAD_SIZE, LAYERS = 2, 4, 2
FRAMES, ROWS, POSITIONS = 3000, 1500, 448
BANDS, SLOTS, PIECES = 8, 150, 3
HEARD = 0.5
"""Features above this sound; a tone of amplitude 0.1 has about 1.2, digital silence at most -0.5."""
FIRST_TIME, FIRST_PIECE = 1, 2000
"""Events: 0 is the end, from 1 times in steps of 0.02 s, from 2000 the pieces of the words."""
EVENT_COUNT = FIRST_PIECE + BANDS * PIECES
_DIGIT = 64
_STEPS = 10  # of 0.02 s in a slot
_HEAD, _PLACE = 1, 2  # where in a cache row the number stands; everything else is zero
_LATER = 10000


@dataclass(frozen=True, slots=True)
class Script:
    """Token ids for the decoder. Tables are int64, one row for each way to say a thing."""

    vocabulary_size: int
    sayings: npt.NDArray[np.int64]
    """[2, EVENT_COUNT]: the token of each event, in English and in the other language."""
    end: int
    start: int
    no_speech: int
    no_timestamps: int
    translate: int
    transcribe: int
    english: int
    other: int
    """The language of sound that begins in the upper four bands."""
    intruders: tuple[int, ...]
    """Tokens that the model likes better than the right one, and that have to be suppressed."""
    first_intruders: tuple[int, ...]
    """The same, before the first token only."""
    fallback: int
    """What it says for the end where the end is suppressed."""
    is_multilingual: bool


class _Graph:
    """Nodes and constants, as they come; every method returns the name of a value."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def node(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        name = output or f"{operator}.{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def constant(self, value: npt.ArrayLike, dtype: npt.DTypeLike = np.int64) -> str:
        name = f"constant.{len(self.initializers)}"
        self.initializers.append(_constant(name, value, dtype))
        return name

    def shift(self, value: str, start: int, stop: int) -> str:
        """Columns of int64 [batch, columns]."""
        return self.node("Slice", value, self.constant([start]), self.constant([stop]), self.constant([1]))

    def only(self, condition: str, value: str) -> str:
        """int64 `value` where `condition` holds, else 0."""
        return self.node("Where", condition, value, self.constant(0))

    def at(self, numbers: str, place: str) -> str:
        """The number at a place of each row: int64 [batch, count] and [batch] to [batch]."""
        column = self.node("Unsqueeze", place, self.constant([1]))
        return self.node("Squeeze", self.node("GatherElements", numbers, column, axis=1), self.constant([1]))

    def cache_rows(self, numbers: str, output: str = "") -> str:
        """Numbers [batch, rows] as rows of a cache, [batch, heads, rows, head size]."""
        mask = np.zeros((1, HEADS, 1, HEAD_SIZE))
        mask[0, _HEAD, 0, _PLACE] = 1
        column = self.node("Unsqueeze", self.node("Cast", numbers, to=FLOAT), self.constant([1, 3]))
        return self.node("Mul", column, self.constant(mask, np.float32), output=output)

    def numbers(self, rows: str) -> str:
        """Back from rows of a cache to int64 [batch, rows]."""
        row = self.node("Gather", rows, self.constant(_HEAD), axis=1)
        return self.node("Cast", self.node("Gather", row, self.constant(_PLACE), axis=2), to=INT64)

    def digits(self, numbers: str) -> tuple[str, str]:
        base = self.constant(_DIGIT)
        return self.node("Div", numbers, base), self.node("Mod", numbers, base)


def encoder_graph(mel_count: int) -> onnx.ModelProto:
    """`input_features[B,M,3000] -> last_hidden_state[B,1500,8], present.N.encoder.key and .value[B,2,1500,4]`."""
    graph = _Graph()
    shape = graph.constant([0, BANDS, mel_count // BANDS, SLOTS, FRAMES // SLOTS])
    means = graph.node("ReduceMean", graph.node("Reshape", "input_features", shape), graph.constant([4]), keepdims=0)
    levels = graph.node("ReduceMax", means, graph.constant([2]), keepdims=0)
    loudest = graph.node("ReduceMax", levels, graph.constant([1]), keepdims=0)
    band = graph.node("Add", graph.node("ArgMax", levels, axis=1, keepdims=0), graph.constant(1))
    band = graph.only(graph.node("Greater", loudest, graph.constant(HEARD, np.float32)), band)
    with_times = _events(graph, band)
    is_piece = graph.node("GreaterOrEqual", with_times, graph.constant(FIRST_PIECE))
    events = _packed(graph, with_times, graph.node("Greater", with_times, graph.constant(0)))
    words = _packed(graph, with_times, is_piece)
    for layer, (key, value) in enumerate(zip(graph.digits(events), graph.digits(words), strict=True)):
        graph.cache_rows(key, f"present.{layer}.encoder.key")
        graph.cache_rows(value, f"present.{layer}.encoder.value")
    column = graph.node("Unsqueeze", graph.node("Cast", events, to=FLOAT), graph.constant([2]))
    width = HEADS * HEAD_SIZE
    graph.node("Mul", column, graph.constant(np.ones((1, 1, width)), np.float32), output="last_hidden_state")
    return _model(
        graph.nodes,
        [_port("input_features", FLOAT, ["batch", mel_count, FRAMES])],
        [_port("last_hidden_state", FLOAT, ["batch", ROWS, width]), *_cache_ports("present", "encoder", ROWS)],
        graph.initializers,
    )


def _events(graph: _Graph, band: str) -> str:
    """Five places for each slot, int64 [batch, 750]: start, three pieces, end; 0 where there is none."""
    nothing = graph.node("Mul", graph.shift(band, 0, 1), graph.constant(0))
    before = graph.node("Concat", nothing, graph.shift(band, 0, SLOTS - 1), axis=1)
    after = graph.node("Concat", graph.shift(band, 1, SLOTS), graph.shift(band, SLOTS - 1, SLOTS), axis=1)
    sounds = graph.node("Greater", band, graph.constant(0))
    starts = graph.node("And", sounds, graph.node("Not", graph.node("Equal", band, before)))
    ends = graph.node("And", sounds, graph.node("Not", graph.node("Equal", band, after)))
    times = np.arange(SLOTS) * _STEPS + FIRST_TIME
    first_piece = graph.node("Mul", graph.node("Sub", band, graph.constant(1)), graph.constant(PIECES))
    places = [graph.only(starts, graph.constant(times[None]))]
    for piece in range(PIECES):
        places.append(graph.only(starts, graph.node("Add", first_piece, graph.constant(FIRST_PIECE + piece))))
    places.append(graph.only(ends, graph.constant(times[None] + _STEPS)))
    columns = [graph.node("Unsqueeze", place, graph.constant([2])) for place in places]
    return graph.node("Reshape", graph.node("Concat", *columns, axis=2), graph.constant([0, -1]))


def _packed(graph: _Graph, events: str, wanted: str) -> str:
    """The wanted events without gaps, in their order, and zeros up to 1500: int64 [batch, 1500]."""
    count = SLOTS * (PIECES + 2)
    order = np.arange(count, dtype=np.float32)[None]
    rank = graph.node("Where", wanted, graph.constant(order, np.float32), graph.constant(order + _LATER, np.float32))
    name = f"TopK.{len(graph.nodes)}"
    graph.nodes.append(
        helper.make_node("TopK", [rank, graph.constant([count])], [name, f"{name}.index"], largest=0, axis=1)
    )
    packed = graph.node("GatherElements", graph.only(wanted, events), f"{name}.index", axis=1)
    return graph.node("Pad", packed, graph.constant([0, 0, 0, ROWS - count]))


def decoder_graph(script: Script) -> onnx.ModelProto:
    """`input_ids[B,S], past_key_values.N.{decoder,encoder}.{key,value} -> logits[B,1,V], present.N.decoder.*`."""
    graph = _Graph()
    history = _history(graph)
    with_times, words = _script(graph, "key"), _script(graph, "value")
    following = _after_start(graph, history, script)
    said = _said(graph, history, following, script)
    is_bare = _any(graph, following, history, script.no_timestamps)
    event = graph.node("Where", is_bare, graph.at(words, said), graph.at(with_times, said))
    is_other = _any(graph, following, history, script.other)
    is_original = graph.node("Not", _any(graph, following, history, script.translate))
    saying = graph.only(graph.node("And", is_other, is_original), graph.constant(EVENT_COUNT))
    token = graph.node("Gather", graph.constant(script.sayings.reshape(-1)), graph.node("Add", saying, event))
    first = graph.node("Gather", words, graph.constant(0), axis=1)
    last = graph.node("Gather", history, graph.constant(-1), axis=1)
    if script.is_multilingual:
        token = _with_prompt(graph, token, first, last, script)
    is_silent = graph.node("Equal", first, graph.constant(0))
    at_start = graph.node("Equal", last, graph.constant(script.start))
    logits = _logits(graph, token, script)
    size, is_first = script.vocabulary_size, graph.node("Equal", said, graph.constant(0))
    logits = _raised(graph, logits, script.first_intruders, is_first, size)
    no_speech = (script.no_speech,) * 2  # above all others
    logits = _raised(graph, logits, no_speech, graph.node("And", at_start, is_silent), size)
    graph.node("Unsqueeze", logits, graph.constant([1]), output="logits")
    return _model(
        graph.nodes,
        [
            _port("input_ids", INT64, ["batch", "tokens"]),
            *_cache_ports("past_key_values", "decoder", "past"),
            *_cache_ports("past_key_values", "encoder", ROWS),
        ],
        [
            _port("logits", FLOAT, ["batch", 1, script.vocabulary_size]),
            *_cache_ports("present", "decoder", "total"),
        ],
        graph.initializers,
    )


def _history(graph: _Graph) -> str:
    """Extend the caches by the new tokens, and read all tokens back from them: int64 [batch, total].

    The number is `64 * key of layer 0 + value of layer 1`, and `value of layer 0 + key of layer 1` adds zero to it.
    """
    high, low = graph.digits("input_ids")
    minus = graph.node("Neg", "input_ids")
    parts = [(0, "key", high), (0, "value", "input_ids"), (1, "key", minus), (1, "value", low)]
    read = []
    for layer, part, numbers in parts:
        name = f"{layer}.decoder.{part}"
        rows = graph.cache_rows(numbers)
        present = graph.node("Concat", f"past_key_values.{name}", rows, output=f"present.{name}", axis=2)
        read.append(graph.numbers(present))
    total = graph.node("Mul", read[0], graph.constant(_DIGIT))
    for value in read[1:]:
        total = graph.node("Add", total, value)
    # Positions that a real model has no embedding for fail here too.
    past = graph.node("Squeeze", graph.node("Shape", "past_key_values.0.decoder.key", start=2, end=3))
    length = graph.node("Squeeze", graph.node("Shape", total, start=1, end=2))
    positions = graph.node("Unsqueeze", graph.node("Range", past, length, graph.constant(1)), graph.constant([0]))
    zeros = graph.node("Gather", graph.constant(np.zeros(POSITIONS)), positions)
    zero = graph.node("ReduceSum", zeros, keepdims=0)
    return graph.node("Add", total, zero)


def _after_start(graph: _Graph, history: str, script: Script) -> str:
    """Which tokens follow the last start of a transcript, that start included: bool [batch, total]."""
    is_start = graph.node("Cast", graph.node("Equal", history, graph.constant(script.start)), to=INT64)
    starts = graph.node("CumSum", is_start, graph.constant(1))
    return graph.node("Equal", starts, graph.node("ReduceSum", is_start, graph.constant([1])))


def _any(graph: _Graph, following: str, history: str, token: int) -> str:
    """Whether `token` is among those that follow the start: bool [batch]."""
    found = graph.node("And", following, graph.node("Equal", history, graph.constant(token)))
    count = graph.node("ReduceSum", graph.node("Cast", found, to=INT64), graph.constant([1]), keepdims=0)
    return graph.node("Greater", count, graph.constant(0))


def _said(graph: _Graph, history: str, following: str, script: Script) -> str:
    """How many text and timestamp tokens follow the start: int64 [batch]."""
    is_text = graph.node("Less", history, graph.constant(script.end))
    is_time = graph.node("Greater", history, graph.constant(script.no_timestamps))
    said = graph.node("And", following, graph.node("Or", is_text, is_time))
    return graph.node("ReduceSum", graph.node("Cast", said, to=INT64), graph.constant([1]), keepdims=0)


def _script(graph: _Graph, part: str) -> str:
    """The events as the cross-attention caches carry them, int64 [batch, 1500]."""
    high, low = (graph.numbers(f"past_key_values.{layer}.encoder.{part}") for layer in range(LAYERS))
    return graph.node("Add", graph.node("Mul", high, graph.constant(_DIGIT)), low)


def _with_prompt(graph: _Graph, token: str, first: str, last: str, script: Script) -> str:
    """A multilingual model expects a language after the start, by the first piece, and a task after the language."""
    is_upper = graph.node("GreaterOrEqual", first, graph.constant(FIRST_PIECE + BANDS // 2 * PIECES))
    language = graph.node("Where", is_upper, graph.constant(script.other), graph.constant(script.english))
    token = graph.node("Where", graph.node("Equal", last, graph.constant(script.start)), language, token)
    for code in (script.english, script.other):
        is_language = graph.node("Equal", last, graph.constant(code))
        token = graph.node("Where", is_language, graph.constant(script.transcribe), token)
    return token


def _logits(graph: _Graph, token: str, script: Script) -> str:
    """10 for the token, 11 for what must be suppressed, 0 for the fallback, -10 for all else: [batch, vocabulary]."""
    base = np.full((1, script.vocabulary_size), -10.0)
    base[0, script.fallback] = 0
    base[0, list(script.intruders)] = 11
    size = graph.constant(script.vocabulary_size)
    chosen = graph.node("OneHot", token, size, graph.constant([0.0, 20.0], np.float32), axis=-1)
    return graph.node("Add", chosen, graph.constant(base, np.float32))


def _raised(graph: _Graph, logits: str, tokens: Sequence[int], when: str, size: int) -> str:
    """Put some tokens above the chosen one where `when`, bool [batch], holds; those named twice above the others."""
    row = np.zeros((1, size))
    np.add.at(row[0], list(tokens), 24)
    weight = graph.node("Unsqueeze", graph.node("Cast", when, to=FLOAT), graph.constant([1]))
    return graph.node("Add", logits, graph.node("Mul", weight, graph.constant(row, np.float32)))


def _cache_ports(prefix: str, side: str, length: int | str) -> list[onnx.ValueInfoProto]:
    names = [f"{prefix}.{layer}.{side}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
    return [_port(name, FLOAT, ["batch", HEADS, length, HEAD_SIZE]) for name in names]
