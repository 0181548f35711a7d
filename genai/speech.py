"""The short road of speech recognition (genai §10): a loaded Whisper model that writes down recordings of any length.

Any thread may call; a second call waits until the first is done. Not here: loading (`speech_loading.py`), what happens
to a recording (`transcript_stream.py`), the long road (`speech_task.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, Unpack

from winml_lite import WinMLError

from .call_fields import call_cancellation, call_timeout
from .cancellation import CancellationLatch
from .closing import AsyncClosing
from .model_source import ENGINE_NAMES, Progress, of_another_model
from .option_values import flag
from .speech_sources import SpeechSource, announced_duration, sound_blocks
from .text_stream import Operation
from .tokenizer import Tokenizer
from .transcript import Transcript
from .transcript_stream import Recording, RunningTranscript, SpeechStream
from .transcription_options import TranscriptionFields, transcription_options
from .turnstile import Turn, Turnstile
from .voice_activity import VoiceActivity
from .whisper_decoding import WhisperDecoder

if TYPE_CHECKING:
    from .async_speech import AsyncSpeechStream

_VOICE_ACTIVITY = "silero-vad"
_Activity: TypeAlias = VoiceActivity | bool | None


class SpeechModel(AsyncClosing):
    """A loaded model that recognises speech. Make it with `genai.load_speech`; close it, or use it in `with`.

    `name` is what it was loaded as, `engine` `"ONNX Runtime"`, `file` the model folder, `languages` the codes of the
    languages that it knows, `is_multilingual` whether it knows more than English.
    """

    def __init__(
        self,
        name: str,
        file: str,
        decoder: WhisperDecoder,
        tokenizer: Tokenizer,
        download: tuple[bool, Progress | None],
    ) -> None:
        """`download`: whether to do without, and whom to tell of it, when voice activity is to be loaded."""
        self.name = name
        self.engine = ENGINE_NAMES["ort"]
        self.file = file
        self.is_multilingual = decoder.tokens.is_multilingual
        self.languages: tuple[str, ...] = tuple(decoder.tokens.languages) if self.is_multilingual else ("en",)
        self._decoder: WhisperDecoder | None = decoder
        self._tokenizer = tokenizer
        self._download = download
        self._activity: VoiceActivity | None = None
        self._turnstile = Turnstile()

    def __repr__(self) -> str:
        if self._decoder is None:
            return f"<SpeechModel {self.name!r} (closed)>"
        languages = f"{len(self.languages)} languages" if self.is_multilingual else "English"
        return f"<SpeechModel {self.name!r} on {self.engine}, {languages}, {self.file}>"

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        self._check_open()
        return self._tokenizer

    def stream(self, audio: SpeechSource, **fields: Unpack[TranscriptionFields]) -> SpeechStream:
        """Write down a recording and yield its segments as they become final.

        audio: the path of a sound file, its bytes, or the file open in binary mode; a `genai.Audio`; a pair (samples,
            sample_rate); an array of samples; or an iterable of blocks of samples of any length, as a microphone gives
            them. Samples are floats or integers of shape (frames,) or (frames, channels), at 16 kHz unless
            `sample_rate` says something else. Memory does not grow with the recording.

        Keyword arguments are the fields of `TranscriptionOptions` (or `options=` with a whole record), and

        sample_rate: Hz, of an array or of blocks.
        live: whether the text of each sentence is wanted a moment after it, as of a microphone. Then the model hears
            what is spoken up to a pause of half a second, or up to 30 seconds, and no sound behind the pause is read
            before the segments are. It runs once for each sentence, not once for 30 seconds. A pipe is read as it
            comes, not to its end first, and must hold WAV.
        voice_activity: whether silences of more than two seconds are cut out before the model hears them. None: in
            recordings of more than 30 seconds, and in all live sound; the model "silero-vad" for it is downloaded once.
            A `VoiceActivity` is used as it is.
        progress: called with (seconds done, all seconds or None) after each window.
        cancellation: a `CancellationSource` that ends it.
        timeout: seconds to wait for another call (None waits as long as it takes, TimeoutError after it).

        Times are right to 0.02 s by what the model says; they never decrease, nor pass the end of the recording.

        Errors of the sound are those of `genai.read_audio`; TypeError and ValueError for arguments that cannot be.
        """
        recording, cancellation, timeout = self._request(audio, fields)
        return self._start(recording, cancellation, timeout)

    def transcribe(self, audio: SpeechSource, **fields: Unpack[TranscriptionFields]) -> Transcript:
        """Write down a recording and return the whole; takes what `stream` takes.

        Where a `cancellation` ends it, that is what was heard so far. A failing model raises WinMLError.
        """
        return self.stream(audio, **fields).read()

    def astream(self, audio: SpeechSource, **fields: Unpack[TranscriptionFields]) -> AsyncSpeechStream:
        """Stream for asyncio: `async for segment in model.astream(...)`; takes what `stream` takes."""
        from .async_speech import AsyncSpeechStream  # brings asyncio

        recording, cancellation, timeout = self._request(audio, fields)
        return AsyncSpeechStream(
            self._turnstile, timeout, lambda turn: self._start(recording, cancellation, timeout, turn), self._check_open
        )

    async def atranscribe(self, audio: SpeechSource, **fields: Unpack[TranscriptionFields]) -> Transcript:
        """Do as `transcribe` for asyncio: the event loop goes on meanwhile, and cancelling the task stops the model."""
        return await self.astream(audio, **fields).read()

    def _request(
        self, audio: SpeechSource, fields: TranscriptionFields
    ) -> tuple[Recording, CancellationLatch | None, float | None]:
        """Check what a caller gave."""
        decoder = self._check_open()
        options = transcription_options(fields)
        options.check(decoder.tokens)
        activity, is_live = fields.get("voice_activity"), flag(fields.get("live", False), "live")
        if activity is not None and not isinstance(activity, bool | VoiceActivity):
            raise TypeError(f"voice_activity must be a bool, None or a VoiceActivity, not {type(activity).__name__}")
        if is_live and activity is False:
            raise ValueError("live=True finds pauses by voice activity: leave voice_activity=False out")
        cancellation, timeout = call_cancellation(fields), call_timeout(fields)
        progress = fields.get("progress")
        if progress is not None and not callable(progress):
            raise TypeError(f"progress must be a function, not {type(progress).__name__}")
        blocks, duration = sound_blocks(audio, fields.get("sample_rate"), is_live=is_live)
        if progress is not None and duration is None:
            duration = announced_duration(audio)
        recording = Recording(
            blocks,
            duration,
            activity=None if activity is False else lambda: self._voice_activity(activity, is_live),
            only_when_long=activity is None and not is_live,
            is_live=is_live,
            options=options,
            progress=progress,
        )
        return recording, cancellation, timeout

    def _start(
        self,
        recording: Recording,
        cancellation: CancellationLatch | None,
        timeout: float | None,
        turn: Turn | None = None,
    ) -> SpeechStream:
        """Start a transcription once it is this call's turn. `turn`: one that is on already, as `astream` has it."""
        given, turn = turn, turn or Turn()
        try:
            if given is None:
                self._turnstile.enter(turn, timeout)
            running = RunningTranscript(self._check_open(), self._tokenizer, recording)
            operation = Operation(running, self._turnstile, turn, source=cancellation)
            if given is None:
                turn.stop = operation.stop
            self._check_open()  # close() in another thread has seen the operation by now, or is seen here
            return SpeechStream(operation, running)
        except BaseException:
            self._turnstile.leave(turn)
            raise

    def _voice_activity(self, given: _Activity, is_needed: bool) -> VoiceActivity:
        """Return what tells speech from silence, loading the model's own at the first use."""
        if isinstance(given, VoiceActivity):
            return given
        if self._activity is None:
            offline, progress = self._download
            try:
                told = of_another_model(progress, _VOICE_ACTIVITY)
                self._activity = VoiceActivity(_VOICE_ACTIVITY, offline=offline, progress=told)
            except WinMLError as error:
                if is_needed:
                    raise
                text = f"{error.native_message or error}; or give voice_activity=False, to hear the silences, too"
                raise type(error)(error.hresult, error.context, text) from error
        return self._activity

    def close(self) -> None:
        """Give the model's memory back. A stream that is still open ends as CANCELED. Again is fine.

        It waits for the step that another thread computes. Inside a running event loop it does not wait: the memory
        then goes a moment later, and `aclose` waits for that.
        """
        decoder, self._decoder = self._decoder, None
        self._turnstile.close(lambda: self._free(decoder))

    def _free(self, decoder: WhisperDecoder | None) -> None:
        if decoder is not None:
            decoder.close()
            self._tokenizer.close()
        activity, self._activity = self._activity, None
        if activity is not None:
            activity.close()

    def _check_open(self) -> WhisperDecoder:
        if self._decoder is None:
            raise RuntimeError("SpeechModel is closed")
        return self._decoder
