"""What a message of a chat is made of beside text: pictures and sound, in the forms in which a caller gives them.

A part is a text or a `ChatMedia`. Not here: reading files (`picture.py`, `audio.py`), messages (`chat_message.py`), and
what an encoder makes of media (`media_rows.py`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from winml_lite import WinMLError

from .codes import E_INVALIDARG
from .picture import PictureSource, Pixels, picture_png, read_picture

if TYPE_CHECKING:
    from .audio import Audio, SoundSource

IMAGE = "image"
AUDIO = "audio"
_IMAGE_URL, _INPUT_AUDIO = "image_url", "input_audio"
"""Parts as web services for chats take them: the content is in the message."""
_FORM = (
    'a part of a message is a str, {"type": "text", "text": ...}, {"type": "image", "image": ...} or '
    '{"type": "audio", "audio": ...}'
)
_DATA = "data:"
_FLOAT_SAMPLES = 3  # a format tag of WAV
SourceT = TypeVar("SourceT")


@dataclass(frozen=True, eq=False, repr=False)
class ChatMedia:
    """A picture or a sound in a message. Make it with `image` or `audio`, which read it at once.

    `content` is the pixels of a picture, uint8 (height, width, 3), or an `Audio` of one channel; `path` the file that
    it came from, None for everything else. Equal when the contents are.
    """

    content: Pixels | Audio
    path: str | None = None

    @classmethod
    def image(cls, source: PictureSource | ChatMedia) -> ChatMedia:
        """Read a picture: a path, the bytes of a file, a file open in binary mode, a Pillow image, a uint8 array
        (height, width, 3), or a `data:` address. Files need Pillow (`pip install 'winml-lite[media]'`).
        """
        if isinstance(source, ChatMedia):
            return _of_kind(source, IMAGE)
        source = _content_of(source)
        return cls(read_picture(source), _path_of(source))

    @classmethod
    def audio(cls, source: SoundSource | ChatMedia) -> ChatMedia:
        """Read a sound: a path, the bytes of a file, a file open in binary mode, a `genai.Audio`, a pair (samples,
        sample rate), or a `data:` address. Channels are averaged. Files need soundfile (`pip install
        'winml-lite[media]'`).
        """
        if isinstance(source, ChatMedia):
            return _of_kind(source, AUDIO)
        from .audio import Audio, read_audio  # chats without sound need none of it

        source = _content_of(source)
        if isinstance(source, np.ndarray):
            raise TypeError("samples alone say no rate: give a pair (samples, sample rate), or a genai.Audio")
        whole = Audio(*source) if isinstance(source, tuple) else source
        sound = (whole if isinstance(whole, Audio) else read_audio(whole)).mono()
        path = _path_of(source)
        if len(sound.samples) < 2:
            raise WinMLError(E_INVALIDARG, path or "the sound", "there is no sound in it: fewer than two samples")
        return cls(sound, path)

    @property
    def kind(self) -> str:
        """`"image"` or `"audio"`."""
        return IMAGE if isinstance(self.content, np.ndarray) else AUDIO

    @cached_property
    def digest(self) -> bytes:
        """16 bytes that only this content has."""
        content = self.content
        form = f"image {content.shape}" if isinstance(content, np.ndarray) else f"audio {content.sample_rate}"
        seen = hashlib.blake2b(form.encode(), digest_size=16)
        seen.update(np.ascontiguousarray(content if isinstance(content, np.ndarray) else content.samples).data)
        return seen.digest()

    def as_dict(self) -> dict[str, str]:
        """Return the part as a mapping for JSON: the path of its file, or else its content as a `data:` address."""
        return {"type": self.kind, self.kind: self.path or self._address()}

    def _address(self) -> str:
        if isinstance(self.content, np.ndarray):
            form, file = "image/png", picture_png(self.content)
        else:
            form, file = "audio/wav", _wave(self.content)
        return f"{_DATA}{form};base64,{base64.b64encode(file).decode('ascii')}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChatMedia) and (other is self or other.digest == self.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        if isinstance(self.content, np.ndarray):
            size = f"{self.content.shape[1]} x {self.content.shape[0]} pixels"
        else:
            size = f"{self.content.duration:.1f} s"
        return f"<ChatMedia {self.kind} of {size}{'' if self.path is None else f', {self.path}'}>"


Part: TypeAlias = str | ChatMedia
GivenPart: TypeAlias = str | ChatMedia | Mapping[str, Any]
"""A text, media, or a mapping such as `{"type": "image", "image": "cat.png"}`; also those of web services, of the type
"image_url" or "input_audio", which hold the content as base64.
"""


def media_list(given: Any, name: str) -> list[ChatMedia]:
    """Read the `images` or the `audio` of a call, which may also be a single one."""
    read = ChatMedia.image if name == "images" else ChatMedia.audio
    if given is None:
        return []
    return [read(source) for source in ([given] if _is_single(given) else given)]


def _is_single(given: Any) -> bool:
    """Whether this is one picture or sound, and no list of them."""
    if isinstance(given, tuple):
        return len(given) == 2 and hasattr(given[1], "__index__") and not isinstance(given[1], np.ndarray)
    return isinstance(given, str | os.PathLike | bytes | np.ndarray) or not isinstance(given, Iterable)


def as_parts(given: Any) -> tuple[Part, ...]:
    """Return the parts of a message; TypeError for anything else than a text or an iterable of parts."""
    if isinstance(given, str):
        return (given,)
    if isinstance(given, Mapping | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"the content of a message is a str or a list of parts, not {type(given).__name__}")
    return tuple(_as_part(part) for part in given)


def _as_part(given: Any) -> Part:
    if isinstance(given, str | ChatMedia):
        return given
    kind = given.get("type") if isinstance(given, Mapping) else None
    if kind not in ("text", IMAGE, AUDIO, _IMAGE_URL, _INPUT_AUDIO) or set(given) != {"type", kind}:
        raise TypeError(f"{_FORM}, not {shortened(given)}")
    value = given[kind]
    if kind == "text":
        if not isinstance(value, str):
            raise TypeError(f"the text of a part is a str, not {type(value).__name__}")
        return value
    if kind == _IMAGE_URL:
        return ChatMedia.image(_address_in(value))
    if kind == _INPUT_AUDIO:
        return ChatMedia.audio(_sound_in(value))
    return ChatMedia.image(value) if kind == IMAGE else ChatMedia.audio(value)


def _address_in(value: Any) -> str:
    """Return the `data:` address of an "image_url" part. They come from elsewhere, and open neither files nor sites."""
    address = value["url"] if isinstance(value, Mapping) and set(value) == {"url"} else value
    if not isinstance(address, str):
        raise TypeError(f'an "image_url" part holds an address or {{"url": address}}, not {shortened(value)}')
    if not address.startswith(_DATA):
        mend = 'nothing is fetched for an "image_url", only a data: address is taken; give files and bytes as "image"'
        raise WinMLError(E_INVALIDARG, shortened(address), mend)
    return address


def _sound_in(value: Any) -> bytes:
    """Return the file in an "input_audio" part; what kind it is shows in itself."""
    if not isinstance(value, Mapping) or set(value) - {"format"} != {"data"} or not isinstance(value["data"], str):
        form = '{"data": base64, "format": "wav"}'
        raise TypeError(f'an "input_audio" part holds {form}, not {shortened(value)}')
    return _decoded(value["data"], '"input_audio"')


def text_of(parts: Iterable[Part]) -> str:
    """Return the text of parts, without what stands between."""
    return "".join(part for part in parts if isinstance(part, str))


def _of_kind(media: ChatMedia, kind: str) -> ChatMedia:
    if media.kind != kind:
        raise TypeError(f"{media!r} is no {kind}")
    return media


def _path_of(source: Any) -> str | None:
    return os.path.abspath(os.fsdecode(source)) if isinstance(source, str | os.PathLike) else None


def _content_of(source: SourceT) -> SourceT | bytes:
    """Return the bytes of a `data:` address, and anything else as it is."""
    if not isinstance(source, str) or not source.startswith(_DATA):
        return source
    head, comma, content = source.partition(",")
    if not comma or not head.endswith(";base64"):
        raise WinMLError(E_INVALIDARG, shortened(source), "not the data address of a file: only base64 is known")
    return _decoded(content, shortened(source))


def _decoded(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise WinMLError(E_INVALIDARG, name, f"not the data address of a file, or no base64: {error}") from None


def _wave(sound: Audio) -> bytes:
    """Return a WAV file of float32 samples."""
    data = sound.samples.astype("<f4", copy=False).tobytes()
    rate = sound.sample_rate
    head = struct.pack("<4sI4s", b"RIFF", 36 + len(data), b"WAVE")
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, _FLOAT_SAMPLES, 1, rate, 4 * rate, 4, 32)
    return head + form + struct.pack("<4sI", b"data", len(data)) + data
