"""A tiny decoder that calls two tools, and answers once it has seen their results.

Its first answer is `CALLS`, whatever the prompt says; where the prompt holds the token `<tool_response>`, which the
chat template writes before the result of a tool, it says `ANSWER`. Not here: the scripted decoder without tools and the
parts of both (`gguf_models.py`).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from .gguf_models import DecoderShape, Floats, decoder_block, llama_metadata
from .gguf_writer import Tensors
from .vocabularies import NORMAL, USER_DEFINED, TinyVocabulary, scripted_vocabulary, spell

_CALL_PIECES = (
    "<tool_call>\n",
    '{"name": "multiply", "arguments": ',
    '{"a": 127, "b": 31}',
    "}\n</tool_call>\n<tool_call>\n",
    '{"name": "population", "arguments": {"city": ',
    '"Łódź"',
    "}}\n</tool_call>",
)
_ANSWER_PIECES = ("127 times 31", " is 3937", ", and", " Łódź", " has 645693", " inhabitants.")
CALLS = "".join(_CALL_PIECES)
"""What the model writes before it has seen a result."""
ANSWER = "".join(_ANSWER_PIECES)
"""What it says afterwards."""
_RESULT = "<tool_response>"
TEMPLATE = """\
{%- if tools %}<|im_start|>system
You may call these tools:
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Call one by <tool_call>{"name": ..., "arguments": {...}}</tool_call>.<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}<|im_start|>user
<tool_response>{{ message.content }}</tool_response><|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}{{ '\\n' if message.content or not loop.first else '' }}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
_SHAPE = DecoderShape(width=96, layers=2, heads=6, kv_heads=2, head_size=16, hidden=160, context_length=4096)
_ASKS, _ANSWERS, _HAS_RESULT = 93, 94, 95
"""Directions of the residual stream that are kept free: of the last token of a prompt, of the result token, and of what
the first layer tells the last token when there is a result.
"""


def tool_vocabulary() -> TinyVocabulary:
    """Return a byte-level vocabulary with a token for each piece of the two answers, which no text is split into."""
    base = scripted_vocabulary(["user", "assistant", "system", "function", "description"])
    pieces = tuple(spell(piece) for piece in (*_CALL_PIECES, *_ANSWER_PIECES))
    return replace(
        base,
        tokens=(*base.tokens, *pieces, _RESULT),
        types=(*base.types, *[NORMAL] * len(pieces), USER_DEFINED),
        chat_template=TEMPLATE,
    )


def tool_model() -> tuple[dict[str, object], Tensors]:
    """Return metadata and tensors of the decoder.

    As in the scripted decoder the output matrix sends each token to its successor. Both answers begin after the line
    feed that ends a prompt. One head of the first layer looks from there for the token of a result, and adds a
    direction that the first piece of the answer has, if there is one.
    """
    vocabulary, shape = tool_vocabulary(), _SHAPE
    end = vocabulary.id("<|im_end|>")
    line_feed, result = ord("\n"), vocabulary.id(_RESULT)  # ids 0..255 are the bytes
    calls = [vocabulary.id(spell(piece)) for piece in _CALL_PIECES]
    answer = [vocabulary.id(spell(piece)) for piece in _ANSWER_PIECES]
    rng = np.random.default_rng(11)
    scale = np.sqrt(shape.width)
    embedding = rng.standard_normal((len(vocabulary.tokens), shape.width))
    embedding[:, _ASKS:] = 0
    embedding[[line_feed, result]] = 0
    embedding[line_feed, _ASKS] = embedding[result, _ANSWERS] = 1
    embedding *= scale / np.linalg.norm(embedding, axis=1, keepdims=True)
    output = 0.02 * rng.standard_normal(embedding.shape)
    for token, successor in [*pairwise([line_feed, *calls, end]), *pairwise([*answer, end])]:
        output[successor] += embedding[token] * (12 / shape.width)
    output[answer[0], _HAS_RESULT] += 30 / scale
    tensors: dict[str, Floats] = {
        "token_embd.weight": embedding.astype(np.float32),
        "output_norm.weight": np.ones(shape.width, np.float32),
        "output.weight": output.astype(np.float32),
    }
    for layer in range(shape.layers):
        tensors |= decoder_block(rng, shape, f"blk.{layer}.", attention_scale=2.0, residual_scale=0.25, norm_noise=0.0)
    _look_for_results(tensors)
    return llama_metadata("tiny-tools-llama", shape, vocabulary), tensors


def _look_for_results(tensors: dict[str, Floats]) -> None:
    """Make the first head of the first layer do it; the other heads that share its keys do nothing."""
    size, sharing = _SHAPE.head_size, _SHAPE.heads // _SHAPE.kv_heads
    query, key, value, output = (tensors[f"blk.0.attn_{part}.weight"] for part in ("q", "k", "v", "output"))
    query[: size * sharing] = key[:size] = value[:size] = 0
    output[:, : size * sharing] = 0
    slow = size - 1  # the pair of numbers that positions rotate least
    query[slow, _ASKS] = key[slow, _ANSWERS] = 2.0
    value[0, _ANSWERS] = output[_HAS_RESULT, 0] = 1.0
