"""What a CTranslate2 file says about its Whisper model, as one frozen record of shapes.

Every size of Whisper is known by its shapes, not by its name. What would change the result and is not implemented is
refused by the name of its variable, never ignored. Not here: the graphs (`whisper_graphs.py`), tokens
(`whisper_vocabulary.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from winml_lite import NotSupportedError, WinMLError

from ..codes import INVALID_DATA, NOT_SUPPORTED
from ..whisper_folder import AUDIO_POSITIONS
from .ctranslate2 import CTranslate2File

Shape = tuple[int, ...]

EMBEDDING, PROJECTION = "decoder/embeddings/weight", "decoder/projection/weight"

_SPECIFICATION, _REVISION = "WhisperSpec", 3
_GELU = 3
_LAYER = re.compile(r"(encoder|decoder)/layer_(\d+)/")
_LARGEST_LAYER_COUNT = 1024
# Switches of other architectures, with the value that Whisper has.
_FIXED = {
    "decoder/activation": _GELU,
    "decoder/alibi": 0,
    "decoder/pre_norm": 1,
    "decoder/scale_embeddings": 0,
    "decoder/start_from_zero_embedding": 0,
}
# What has no influence on the logits of such a model.
_IDLE = {
    "decoder/alibi_use_positive_positions",
    "decoder/alignment_heads",
    "decoder/alignment_layer",
    "decoder/scale_alibi",
}
_HEADS = ("encoder/num_heads", "decoder/num_heads")


@dataclass(frozen=True, slots=True)
class WhisperArchitecture:
    """Extents of encoder and decoder, which share their width."""

    mel_count: int
    width: int
    encoder_layers: int
    decoder_layers: int
    encoder_heads: int
    decoder_heads: int
    encoder_hidden: int
    """Extent inside the feed-forward parts."""
    decoder_hidden: int
    position_count: int
    """Most tokens of a sequence."""
    row_count: int
    """Rows of the embedding; some models have more than tokens."""
    has_projection: bool = False
    """False: the token embedding is also the output matrix."""

    @property
    def head_size(self) -> int:
        """Of the decoder, whose caches it shapes."""
        return self.width // self.decoder_heads

    def variable_shapes(self) -> dict[str, Shape]:
        """Return name and shape of every variable of the model but switches."""
        width = self.width
        shapes: dict[str, Shape] = {
            "encoder/conv1/weight": (width, self.mel_count, 3),
            "encoder/conv1/bias": (width,),
            "encoder/conv2/weight": (width, width, 3),
            "encoder/conv2/bias": (width,),
            "encoder/position_encodings/encodings": (AUDIO_POSITIONS, width),
            "decoder/position_encodings/encodings": (self.position_count, width),
            EMBEDDING: (self.row_count, width),
            **_norm("encoder/", width),
            **_norm("decoder/", width),
        }
        if self.has_projection:
            shapes[PROJECTION] = (self.row_count, width)
        for layer in range(self.encoder_layers):
            shapes |= self._layer(f"encoder/layer_{layer}/", self.encoder_hidden)
        for layer in range(self.decoder_layers):
            name = f"decoder/layer_{layer}/"
            shapes |= self._layer(name, self.decoder_hidden)
            shapes |= _norm(f"{name}attention/", width)
            for index, rows in enumerate((width, 2 * width, width)):
                shapes |= _linear(f"{name}attention/linear_{index}", rows, width)
        return shapes

    def _layer(self, name: str, hidden: int) -> dict[str, Shape]:
        width = self.width
        return {
            **_norm(f"{name}self_attention/", width),
            **_linear(f"{name}self_attention/linear_0", 3 * width, width),
            **_linear(f"{name}self_attention/linear_1", width, width),
            **_norm(f"{name}ffn/", width),
            **_linear(f"{name}ffn/linear_0", hidden, width),
            **_linear(f"{name}ffn/linear_1", width, hidden),
        }


def _norm(name: str, width: int) -> dict[str, Shape]:
    return {f"{name}layer_norm/gamma": (width,), f"{name}layer_norm/beta": (width,)}


def _linear(name: str, rows: int, columns: int) -> dict[str, Shape]:
    return {f"{name}/weight": (rows, columns), f"{name}/bias": (rows,)}


def read_architecture(source: CTranslate2File) -> WhisperArchitecture:
    """Read and check the record. WinMLError 0x80070032 for what is not such a Whisper model, by the name of what is
    not known; 0x8007000D for one that contradicts itself.
    """
    if (source.specification, source.revision) != (_SPECIFICATION, _REVISION):
        found = f"{source.specification} revision {source.revision}"
        raise refuse(source.path, f"the model is {found}; only {_SPECIFICATION} revision {_REVISION} can be converted")
    embedding, conv = _shape(source, EMBEDDING, 2), _shape(source, "encoder/conv1/weight", 3)
    width = embedding[1]
    architecture = WhisperArchitecture(
        mel_count=conv[1],
        width=width,
        encoder_layers=_layer_count(source, "encoder"),
        decoder_layers=_layer_count(source, "decoder"),
        encoder_heads=_heads(source, _HEADS[0], width),
        decoder_heads=_heads(source, _HEADS[1], width),
        encoder_hidden=_shape(source, "encoder/layer_0/ffn/linear_0/weight", 2)[0],
        decoder_hidden=_shape(source, "decoder/layer_0/ffn/linear_0/weight", 2)[0],
        position_count=_shape(source, "decoder/position_encodings/encodings", 2)[0],
        row_count=embedding[0],
        has_projection=_has_projection(source),
    )
    _check_variables(source, architecture)
    return architecture


def refuse(path: str, reason: str) -> WinMLError:
    """Return the error for a model that is valid but cannot be converted."""
    return NotSupportedError(NOT_SUPPORTED, "convert_whisper", f"{path}: {reason}")


def invalid(path: str, reason: str) -> WinMLError:
    """Return the error for a model that contradicts itself."""
    return WinMLError(INVALID_DATA, "convert_whisper", f"{path}: {reason}")


def _shape(source: CTranslate2File, name: str, rank: int) -> Shape:
    variable = source.variables.get(name)
    if variable is None or len(variable.shape) != rank:
        raise invalid(source.path, f"there is no variable {name} of {rank} dimensions: not a complete Whisper model")
    return variable.shape


def _layer_count(source: CTranslate2File, part: str) -> int:
    found = {int(match[2]) for match in map(_LAYER.match, source.variables) if match and match[1] == part}
    if not found or len(found) > _LARGEST_LAYER_COUNT or max(found) != len(found) - 1:
        raise invalid(
            source.path, f"the layers of the {part} are not numbered from 0 on: {_some(map(str, sorted(found)))}"
        )
    return len(found)


def _heads(source: CTranslate2File, name: str, width: int) -> int:
    if name not in source or source.variables[name].shape:
        raise invalid(source.path, f"there is no number {name}")
    heads = source.scalar(name)
    if not 1 <= heads <= width or width % heads:
        raise invalid(source.path, f"{heads:g} heads cannot share a width of {width}")
    return int(heads)


def _has_projection(source: CTranslate2File) -> bool:
    projection = source.variables.get(PROJECTION)
    return projection is not None and projection != source.variables[EMBEDDING]


def _check_variables(source: CTranslate2File, architecture: WhisperArchitecture) -> None:
    """Refuse variables that are not part of the architecture, and complain about missing or misshapen ones."""
    expected = architecture.variable_shapes()
    missing = [name for name in expected if name not in source]
    if missing:
        raise invalid(source.path, f"variables are missing: {_some(missing)}")
    for name, shape in expected.items():
        variable = source.variables[name]
        if variable.shape != shape:
            raise invalid(source.path, f"{name} has the shape {variable.shape}, not {shape}")
        if variable.dtype.kind == "i":
            _check_scale(source, name, shape)
    unknown = [name for name in source.variables if not _is_known(source, name, expected)]
    if unknown:
        raise refuse(source.path, f"the conversion does not know what to do with {_some(sorted(unknown))}")
    for name, value in _FIXED.items():
        if name in source and source.scalar(name) != value:
            raise refuse(source.path, f"{name} is {source.scalar(name):g}; only {value} can be converted")


def _check_scale(source: CTranslate2File, name: str, shape: Shape) -> None:
    scale = source.variables.get(f"{name}_scale")
    if scale is None or scale.dtype.kind == "i" or scale.shape not in ((), (1,), shape[:1]):
        raise invalid(source.path, f"the integers of {name} have no scale for all or for each row")


def _is_known(source: CTranslate2File, name: str, expected: dict[str, Shape]) -> bool:
    if name in expected or name in (*_HEADS, *_FIXED, *_IDLE, PROJECTION):
        return True
    if name.endswith("/keep_in_float32"):
        return True
    owner = name.removesuffix("_scale")
    return owner != name and (owner in expected or owner == PROJECTION) and source.variables[owner].dtype.kind == "i"


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")
