"""The stream of a transcription for asyncio: what it reads, files or blocks of a microphone, is read in its thread.

Imported at the first asynchronous call. Not here: how the thread and the event loop work together (`async_stream.py`).
"""

from __future__ import annotations

from .async_stream import AsyncStream
from .transcript import Transcript, TranscriptSegment


class AsyncSpeechStream(AsyncStream[TranscriptSegment, Transcript]):
    """An asynchronous iterator of the segments of a recording; afterwards `result` holds the whole transcript."""
