"""A web service whose answers stream to several clients at once, in one event loop.

    pip install starlette uvicorn
    python examples/web_handler.py [MODEL] [PORT]
    curl -N --data "Why is the sky blue?" http://127.0.0.1:8000/

A model answers one question at a time. The file is loaded twice: the weights are in memory once, each load adds its own
sequence, and with it one more client. Further clients wait, in the event loop and in order. A client that goes away
gives its place up, or ends its generation. A question that does not fit the context of the model is refused with the
status 413.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Content, StreamingResponse
from starlette.routing import Route
from starlette.types import Send

import genai

CLIENTS = 2
"""Answers at a time. Each gets its share of the processors: models that compete for them are slow."""
MAX_NEW_TOKENS = 400
TOO_LONG = 0x8007007A

logger = logging.getLogger("uvicorn.error")


def make_app(source: str) -> Starlette:
    """Return the service for a model file, a model folder or a catalog name."""
    free: asyncio.Queue[genai.LanguageModel] = asyncio.Queue()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        threads = max((os.cpu_count() or 1) // CLIENTS, 1)
        async with AsyncExitStack() as stack:
            for _ in range(CLIENTS):
                model = await asyncio.to_thread(genai.load, source, threads=threads)
                free.put_nowait(await stack.enter_async_context(model))
            yield

    async def pieces(question: str) -> AsyncIterator[str]:
        model = await free.get()
        try:
            async with model.chat().astream(question, max_new_tokens=MAX_NEW_TOKENS) as stream:
                async for piece in stream:
                    yield piece
            logger.info("%s after %d tokens", stream.result.finish_reason.name, len(stream.result.token_ids))
        finally:
            free.put_nowait(model)

    async def answer(request: Request) -> Answer:
        question = (await request.body()).decode(errors="replace")
        return Answer(pieces(question), media_type="text/plain; charset=utf-8")

    return Starlette(routes=[Route("/", answer, methods=["POST"])], lifespan=lifespan)


class Answer(StreamingResponse):
    """A response that begins with its first piece: until then its status can tell that there is none."""

    async def stream_response(self, send: Send) -> None:
        pieces = aiter(self.body_iterator)
        try:
            first = await anext(pieces, "")
        except genai.WinMLError as error:
            if error.hresult != TOO_LONG:
                raise
            self.status_code, first = 413, f"{error.native_message}\n"
        self.body_iterator = continued(first, pieces)
        await super().stream_response(send)


async def continued(first: Content, rest: AsyncIterator[Content]) -> AsyncIterator[Content]:
    """Yield a piece that was read already, and the rest."""
    yield first
    async for piece in rest:
        yield piece


def main() -> None:
    """Serve on the loopback interface."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "model",
        nargs="?",
        default="smollm2",
        metavar="MODEL",
        help="file, folder or catalog name; default: %(default)s",
    )
    parser.add_argument("port", nargs="?", type=int, default=8000, metavar="PORT", help="default: %(default)s")
    given = parser.parse_args()
    uvicorn.run(make_app(given.model), host="127.0.0.1", port=given.port)


if __name__ == "__main__":
    main()
