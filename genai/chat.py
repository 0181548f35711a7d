"""A conversation on the short road: it keeps its history and formats each turn with the model's own template.

With tools a turn has several rounds, see `chat_turn.py`; its streams are `turn_stream.py` and `async_chat.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from .call_fields import CallFields, FormFields, answer_form_of, call_cancellation, call_options, call_timeout
from .chat_message import ChatMessage, Message, as_message
from .chat_parts import ChatMedia, GivenPart, as_parts, media_list
from .chat_turn import ChatTurn
from .messages import ChatCompletionTool, ChatRole
from .tool_calls import ChatFields, TurnSettings, check_blocking, check_no_form, turn_settings
from .turn_stream import ChatStream, TurnWork
from .turnstile import Turn, Turnstile

if TYPE_CHECKING:
    from .async_chat import AsyncChatStream
    from .audio import SoundSource
    from .chat_reply import ChatReply
    from .language_model import LanguageModel
    from .media_rows import MediaRows
    from .picture import PictureSource


class MediaFields(TypedDict, total=False):
    """Pictures and sound of one turn; in front of the text, pictures first."""

    images: Iterable[PictureSource] | PictureSource
    """Each a path, the bytes of a file, a Pillow image, or a uint8 array (height, width, 3)."""
    audio: Iterable[SoundSource] | SoundSource
    """Each a path, the bytes of a file, a `genai.Audio`, or a pair (samples, sample rate)."""


class TurnFields(CallFields, ChatFields, MediaFields, total=False):
    """Keyword arguments of one turn: those of any call, those of a chat, and pictures and sound."""


class Chat:
    """A conversation with a model. Make it with `LanguageModel.chat`.

    Each turn sends the whole history; what the model has already evaluated of it is not evaluated again. An answer that
    was cut short keeps its text in the history; a failed turn, or a cancelled one without text, leaves the history as
    it was. Any thread may use it; a second turn waits until the first one is over.
    """

    def __init__(
        self, model: LanguageModel, system: str | None, messages: Iterable[Message], fields: ChatFields
    ) -> None:
        """`fields` are those of every turn that does not say otherwise."""
        if system is not None and not isinstance(system, str):
            raise TypeError(f"system must be a str or None, not {type(system).__name__}; a history is messages=")
        unknown = fields.keys() - ChatFields.__annotations__
        if unknown:
            raise TypeError(
                f"a chat has no option {', '.join(sorted(unknown))}; those of answers are for send and stream"
            )
        self._model = model
        self.system = system
        """The system message of the following turns; None for none."""
        self._settings: TurnSettings = turn_settings(fields)
        self._fields: Mapping[str, Any] = {**fields, "tools": tuple(self._settings.tools.values())}
        self._turnstile = Turnstile()
        self._messages: list[ChatMessage] = []
        self._hidden: frozenset[str] = frozenset()
        given = [as_message(message) for message in messages]
        if system is not None and _has_system(given):
            raise ValueError("give the system message as system= or as the first of messages, not both")
        self.messages = tuple(given)

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        """The history as (role, content) pairs, without the system message.

        The messages of a turn with tools also hold the calls and their results, see `ChatMessage`.

        Assign to replace it: pairs, or mappings with "role" and "content". A system message at the front becomes
        `system`; without one `system` stays as it is.
        """
        return tuple(self._messages)

    @messages.setter
    def messages(self, messages: Iterable[Message]) -> None:
        given = [as_message(message) for message in messages]
        if _has_system(given):
            self.system = given.pop(0).content
        self._messages = given

    @property
    def model(self) -> LanguageModel:
        """The model that answers."""
        return self._model

    @property
    def tools(self) -> tuple[ChatCompletionTool, ...]:
        """The tools of the chat as the model is shown them."""
        return self._settings.declarations

    def __repr__(self) -> str:
        return f"<Chat with {self._model.name!r}, {len(self._messages)} messages, system {self.system!r}>"

    def stream(self, text: str | Iterable[GivenPart], **fields: Unpack[TurnFields]) -> ChatStream:
        """Send `text` as the user's turn and yield the answer piece by piece.

        Takes what `LanguageModel.stream` takes, and for this turn alone what `LanguageModel.chat` takes: tools and how
        they are called. The turn enters the history when the stream ends or is closed.

        A model that was loaded with `projector=` also takes `images=` and `audio=`, which come before the text. Where
        the order matters, `text` is a list of parts: texts, and mappings such as `{"type": "image", "image": "a.png"}`
        or `{"type": "audio", "audio": "a.wav"}`. They are read and encoded before this call returns; what an earlier
        turn has shown is not encoded again.
        """
        turn, call_fields = self._turn(text, fields)
        check_blocking(turn.settings)
        place = Turn()
        work = TurnWork(
            turn, lambda turn: self._model._start(turn.make_prompt, call_fields, turn.end_round), self._turnstile, place
        )
        try:
            self._turnstile.enter(place, call_timeout(call_fields))
            work.begin_round()
            return ChatStream(work)
        except BaseException:
            work.end()
            raise

    def send(self, text: str | Iterable[GivenPart], **fields: Unpack[TurnFields]) -> ChatReply:
        """Send `text` as the user's turn and return the whole answer; takes what `stream` takes."""
        return self.stream(text, **fields).read()

    def astream(self, text: str | Iterable[GivenPart], **fields: Unpack[TurnFields]) -> AsyncChatStream:
        """Stream for asyncio: `async for piece in chat.astream(...)`; takes what `stream` takes.

        Tools and `approve` may be coroutine functions here.
        """
        from .async_chat import AsyncChatStream  # brings asyncio

        turn, call_fields = self._turn(text, fields)
        model = self._model
        return AsyncChatStream(
            turn,
            lambda turn: model._astream(
                lambda place: model._start(turn.make_prompt, call_fields, turn.end_round, place), call_fields
            ),
            self._turnstile,
            call_timeout(call_fields),
        )

    async def asend(self, text: str | Iterable[GivenPart], **fields: Unpack[TurnFields]) -> ChatReply:
        """Do as `send` for asyncio: the event loop goes on meanwhile, and cancelling the task stops the turn."""
        return await self.astream(text, **fields).read()

    def reset(self) -> None:
        """Forget the history; the system message stays."""
        self._messages = []

    def _turn(self, text: str | Iterable[GivenPart], fields: Mapping[str, Any]) -> tuple[ChatTurn, CallFields]:
        """Check the arguments of a turn; return it, and the arguments of its generations."""
        own = {name: value for name, value in fields.items() if name in ChatFields.__annotations__}
        settings = turn_settings({**self._fields, **own}) if own else self._settings
        check_no_form(settings, [name for name in FormFields.__annotations__ if fields.get(name) is not None])
        known = own.keys() | MediaFields.__annotations__.keys()
        rest: Any = {name: value for name, value in fields.items() if name not in known}
        call_options(rest)
        answer_form_of(rest)
        message = self._message(text, fields)
        return ChatTurn(_Past(self), message, settings, call_cancellation(rest)), rest

    def _message(self, text: str | Iterable[GivenPart], fields: Mapping[str, Any]) -> ChatMessage:
        """Make the user's message, which reads the files of pictures and sound."""
        if isinstance(text, bytes | Mapping) or not isinstance(text, Iterable):
            kind = type(text).__name__
            raise TypeError(f"text must be a str or a list of parts, not {kind}; a history is chat.messages")
        media: list[ChatMedia] = []
        if not fields.keys().isdisjoint(MediaFields.__annotations__):
            self._model._media_rows()
            media += media_list(fields.get("images"), "images") + media_list(fields.get("audio"), "audio")
        message = ChatMessage(ChatRole.USER, [*media, *as_parts(text)])
        for part in message.parts:
            if isinstance(part, ChatMedia):
                self._model._media_rows().check(part)
        return message


class _Past:
    """The history as a turn sees it."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat

    @property
    def hidden(self) -> frozenset[str]:
        return self._chat._hidden

    @hidden.setter
    def hidden(self, names: frozenset[str]) -> None:
        self._chat._hidden = names

    @property
    def rows(self) -> MediaRows:
        return self._chat._model._media_rows()

    def past(self) -> list[ChatMessage]:
        system = self._chat.system
        first = [] if system is None else [ChatMessage(ChatRole.SYSTEM, system)]
        return [*first, *self._chat.messages]

    def remember(self, messages: Sequence[ChatMessage]) -> None:
        self._chat.messages = (*self._chat.messages, *messages)


def _has_system(messages: list[ChatMessage]) -> bool:
    return bool(messages) and messages[0].role == ChatRole.SYSTEM
