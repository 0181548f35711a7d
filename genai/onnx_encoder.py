"""Embeddings by ONNX Runtime: a transformer graph in a model folder, as sentence-transformers describes it.

Read beside the graph: `modules.json` (which modules there are), `1_Pooling/config.json` (how tokens are pooled),
`sentence_bert_config.json`, `config.json` and `tokenizer_config.json` (how long a text may be). Not here: tokenizing,
normalising (`embedding.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from winml_lite import NotSupportedError, Pipeline, Runtime, Stage, TensorDataType

from .cancellation import CancellationLatch
from .codes import NOT_SUPPORTED
from .embedding import Pooling, Rows, TextPooling
from .endpoints import FREE_DIMENSION
from .operation_failures import past_late_cancel
from .reading import read_json_if_there
from .turn_calls import check_not_canceled

_CONTEXT = "genai.load_embedding"
_LARGEST_BATCH = 32
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_TOKEN_OUTPUTS = ("last_hidden_state", "token_embeddings")
_TEXT_OUTPUT = "sentence_embedding"
_SWITCHES: dict[str, TextPooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}
_NAMED: dict[str, TextPooling] = {"mean": "mean", "cls": "cls", "max": "max", "lasttoken": "last"}
_PLAIN_MODULES = ("Transformer", "Pooling", "Normalize")
_POSITIONS_BEHIND_PADDING = ("roberta", "xlm-roberta", "camembert", "mpnet")
"""Kinds of models that count positions from the id of the padding token plus one."""
_DEFAULT_LIMIT = 512
_INTEGERS: dict[TensorDataType, type[np.integer[Any]]] = {
    TensorDataType.INT64: np.int64,
    TensorDataType.INT32: np.int32,
}
Ids = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """What the files of a folder say."""

    pooling: TextPooling
    limit: int
    padding_id: int


def read_encoder_settings(folder: Path) -> EncoderSettings:
    """Read how a folder wants its model used; a plain folder is pooled by the mean, as sentence-transformers does it.

    NotSupportedError 0x80070032 for modules or poolings that are not run here, 0x8007000D for broken files.
    """
    config = read_json_if_there(folder / "config.json", _CONTEXT)
    limits = [_count(read_json_if_there(folder / "sentence_bert_config.json", _CONTEXT).get("max_seq_length"))]
    positions = _count(config.get("max_position_embeddings"))
    padding_id = _count(config.get("pad_token_id")) or 0
    if positions and config.get("model_type") in _POSITIONS_BEHIND_PADDING:
        positions -= padding_id + 1
    limits += [
        positions,
        _count(read_json_if_there(folder / "tokenizer_config.json", _CONTEXT).get("model_max_length")),
    ]
    known = [limit for limit in limits if limit is not None]
    return EncoderSettings(_pooling(folder), min(known, default=_DEFAULT_LIMIT), padding_id)


def _pooling(folder: Path) -> TextPooling:
    found = read_json_if_there(folder / "modules.json", _CONTEXT, list)
    path = folder / "1_Pooling"
    for module in found:
        kind = str(module.get("type", "")).rpartition(".")[2] if isinstance(module, dict) else str(module)
        if kind not in _PLAIN_MODULES:
            text = f"{folder} has a module {kind!r}; those that are run are {', '.join(_PLAIN_MODULES)}"
            raise NotSupportedError(NOT_SUPPORTED, _CONTEXT, text)
        if kind == "Pooling":
            path = folder / str(module.get("path", "1_Pooling"))
    settings = read_json_if_there(path / "config.json", _CONTEXT)
    named = settings.get("pooling_mode")
    modes = [named] if isinstance(named, str) else [name for name in settings if name.startswith("pooling_mode_")]
    chosen = [name for name in modes if name == named or settings[name] is True]
    if not chosen:
        return "mean"
    pooling = _NAMED.get(chosen[0]) or _SWITCHES.get(chosen[0])
    if len(chosen) > 1 or pooling is None:
        text = f"{path / 'config.json'} asks for {' and '.join(chosen)}; give pooling= yourself"
        raise NotSupportedError(NOT_SUPPORTED, _CONTEXT, text)
    return pooling


def _count(value: Any) -> int | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 30
    return value if fits else None


class OnnxEncoder:
    """Implements `Encoder`. `names` are those of the graph's inputs and outputs, by position."""

    def __init__(
        self,
        runtime: Runtime,
        built: tuple[Stage, Pipeline],
        names: tuple[list[str], list[str]],
        settings: EncoderSettings,
        limit: int | None,
    ) -> None:
        self._runtime = runtime
        self._stage, self._pipeline = built
        self._inputs, outputs = names
        self._padding_id = settings.padding_id
        self.pooling = settings.pooling
        schema = self._stage.schema()
        data_type, (batch, length) = schema.input_desc(self._inputs.index("input_ids"))
        self._dtype = _INTEGERS[data_type]
        self._length = None if length == FREE_DIMENSION else length
        self._batch = _LARGEST_BATCH if batch == FREE_DIMENSION and "attention_mask" in self._inputs else 1
        self.limit = min(limit or settings.limit, settings.limit, self._length or settings.limit)
        tokens = [outputs.index(name) for name in _TOKEN_OUTPUTS if name in outputs]
        self._gives_texts = not tokens
        self._output = tokens[0] if tokens else outputs.index(_TEXT_OUTPUT)
        self._stage.request_output(self._output)
        self.dimension: int = schema.output_desc(self._output)[1][-1]
        if self.dimension == FREE_DIMENSION:
            self.dimension = self._run([[settings.padding_id]], "none" if tokens else self.pooling)[0].shape[-1]

    def abort(self) -> None:
        with suppress(RuntimeError):  # it was closed meanwhile
            self._pipeline.cancel_run()

    def encode(self, texts: Sequence[list[int]], pooling: Pooling | None, latch: CancellationLatch) -> list[Rows]:
        if self._gives_texts and pooling is not None:
            text = "the graph pools by itself; leave pooling out"
            raise NotSupportedError(NOT_SUPPORTED, "embed", text)
        by_length = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        rows: dict[int, Rows] = {}
        for start in range(0, len(texts), self._batch):  # texts of like length together, so that little is padded
            check_not_canceled(latch, "embed")
            chosen = by_length[start : start + self._batch]
            run = partial(self._run, [texts[index] for index in chosen], pooling or self.pooling)
            rows.update(zip(chosen, past_late_cancel(run, latch), strict=True))
        return [rows[index] for index in range(len(texts))]

    def _run(self, texts: list[list[int]], pooling: Pooling) -> list[Rows]:
        lengths = [len(text) for text in texts]
        shape = len(texts), self._length or max(lengths)
        ids, mask = np.full(shape, self._padding_id, self._dtype), np.zeros(shape, self._dtype)
        for row, text in enumerate(texts):
            ids[row, : len(text)] = text
            mask[row, : len(text)] = 1
        arrays: dict[str, Ids] = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        for index, name in enumerate(self._inputs):
            with self._runtime.tensor_from_numpy(arrays[name]) as tensor:
                self._stage.bind_input(index, tensor)
        self._pipeline.run()
        with self._stage.output(self._output) as output:
            states = output.to_numpy().astype(np.float32)
        if self._gives_texts:
            return list(states)
        return [_pooled(state[:length], pooling) for state, length in zip(states, lengths, strict=True)]

    def close(self) -> None:
        self._stage.close()
        self._pipeline.close()
        self._runtime.close()


def check_encoder(file: Path, inputs: list[str], outputs: list[str]) -> None:
    """Refuse a graph that is no encoder of texts: NotSupportedError 0x80070032 that names what is missing."""
    unknown = [name for name in inputs if name not in _INPUTS]
    if "input_ids" not in inputs or unknown:
        text = f"{file} is no encoder of texts: its inputs are {inputs}, not {', '.join(_INPUTS)}"
        raise NotSupportedError(NOT_SUPPORTED, _CONTEXT, text)
    if not {*_TOKEN_OUTPUTS, _TEXT_OUTPUT} & set(outputs):
        wanted = ", ".join((*_TOKEN_OUTPUTS, _TEXT_OUTPUT))
        text = f"{file} has none of the outputs {wanted}: its outputs are {outputs}"
        raise NotSupportedError(NOT_SUPPORTED, _CONTEXT, text)


def _pooled(states: Rows, pooling: Pooling) -> Rows:
    """Pool the vectors of the tokens of one text, (tokens, dimension)."""
    kept: Rows
    if pooling == "none":
        kept = states.copy()
    elif pooling == "cls":
        kept = states[0].copy()
    elif pooling == "last":
        kept = states[-1].copy()
    else:
        kept = states.max(axis=0) if pooling == "max" else states.mean(axis=0)
    return kept
