"""Turns of a chat for asyncio: coroutines as tools, a free event loop, cancellation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fakes.rig import failing
from fakes.tool_model import ToolModel, call, tool_model
from genai import TextGenerationFinishReason
from genai.chat_reply import ChatReply, ToolCall, ToolCallStatus

T = TypeVar("T")
ADD = call("add", '{"a": 2, "b": 3}')


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    await asyncio.sleep(0)
    return a + b


def run(tmp_path: Path, answers: list[str], program: Callable[[ToolModel], Awaitable[T]]) -> T:
    """Run a program with a model that gives these answers."""

    async def main(fake: ToolModel) -> T:
        return await program(fake)

    with tool_model(tmp_path, answers) as fake:
        return asyncio.run(main(fake))


def test_a_coroutine_is_awaited(tmp_path: Path) -> None:
    async def program(fake: ToolModel) -> tuple[ChatReply, Any]:
        chat = fake.model.chat(tools=[add])
        return await chat.asend("2 + 3?"), chat.messages

    reply, messages = run(tmp_path, [ADD, "It is 5."], program)
    assert (reply.text, reply.tool_calls[0].result) == ("It is 5.", "5")
    assert messages == (("user", "2 + 3?"), ("assistant", ""), ("tool", "5"), ("assistant", "It is 5."))


def test_pieces_of_all_rounds_come(tmp_path: Path) -> None:
    async def program(fake: ToolModel) -> tuple[str, str]:
        stream = fake.model.chat(tools=[add]).astream("2 + 3?")
        pieces = [piece async for piece in stream]
        return "".join(pieces), stream.result.text

    assert run(tmp_path, [f"Wait.\n{ADD}", "It is 5."], program) == ("Wait.\nIt is 5.", "It is 5.")


def test_other_tools_run_in_a_thread(tmp_path: Path) -> None:
    threads: list[threading.Thread] = []

    def add(a: int, b: int) -> int:
        threads.append(threading.current_thread())
        return a + b

    async def program(fake: ToolModel) -> ChatReply:
        return await fake.model.chat(tools=[add]).asend("2 + 3?")

    assert run(tmp_path, [ADD, "It is 5."], program).tool_calls[0].value == 5
    assert threads[0] is not threading.main_thread()


def test_the_event_loop_goes_on_while_a_tool_waits(tmp_path: Path) -> None:
    async def program(fake: ToolModel) -> str:
        asked, answer = asyncio.Event(), asyncio.Event()

        async def add(a: int, b: int) -> int:
            asked.set()
            await answer.wait()
            return a + b

        task = asyncio.create_task(fake.model.chat(tools=[add]).asend("2 + 3?"))
        await asked.wait()
        other = await fake.model.chat().asend("Hi")  # the model is free meanwhile
        answer.set()
        return other.text + (await task).text

    assert run(tmp_path, [ADD, "Hello. ", "It is 5."], program) == "Hello. It is 5."


def test_approval_may_be_a_coroutine(tmp_path: Path) -> None:
    async def ask(made: ToolCall) -> bool:
        await asyncio.sleep(0)
        return False

    async def program(fake: ToolModel) -> ChatReply:
        return await fake.model.chat(tools=[add], approve=ask).asend("2 + 3?")

    assert run(tmp_path, [ADD, "Sorry."], program).tool_calls[0].status is ToolCallStatus.REFUSED


def test_cancelling_the_task_cancels_the_tool_and_frees_the_chat(tmp_path: Path) -> None:
    async def program(fake: ToolModel) -> tuple[list[str], Any, str]:
        asked, log = asyncio.Event(), list[str]()

        async def add(a: int, b: int) -> int:
            asked.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                log.append("cancelled")
                raise
            return a + b

        chat = fake.model.chat()
        task = asyncio.create_task(chat.asend("2 + 3?", tools=[add]))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        messages = chat.messages
        return log, messages, (await chat.asend("Hi")).text

    assert run(tmp_path, [ADD, "Hello."], program) == (["cancelled"], (), "Hello.")


def test_a_second_turn_of_the_chat_waits(tmp_path: Path) -> None:
    async def program(fake: ToolModel) -> list[str]:
        chat = fake.model.chat(tools=[add])
        await asyncio.gather(chat.asend("2 + 3?"), chat.asend("Hi"))
        return [message.content for message in chat.messages]

    contents = ["2 + 3?", "", "5", "It is 5.", "Hi", "Hello."]
    assert run(tmp_path, [ADD, "It is 5.", "Hello."], program) == contents


def test_a_second_turn_of_the_same_task_is_refused(tmp_path: Path) -> None:
    async def program(fake: ToolModel) -> str:
        chat = fake.model.chat()
        async with chat.astream("Hi") as stream:
            await anext(stream)
            with failing(0x8007139F):
                await chat.asend("Hi")
        return (await chat.asend("Hi")).text

    assert run(tmp_path, ["Hello.", "Again."], program) == "Again."


def test_closing_in_the_middle_keeps_what_was_said(tmp_path: Path) -> None:
    async def program(fake: ToolModel) -> tuple[TextGenerationFinishReason, Any]:
        chat = fake.model.chat()
        stream = chat.astream("Hi")
        assert await anext(stream) == "H"
        await stream.aclose()
        return stream.result.finish_reason, chat.messages

    reason, messages = run(tmp_path, ["Hello."], program)
    assert reason is TextGenerationFinishReason.CANCELED
    assert messages[0] == ("user", "Hi")
    assert "Hello.".startswith(messages[1].content)


def test_dropping_the_stream_frees_the_chat(tmp_path: Path) -> None:
    async def program(fake: ToolModel) -> str:
        chat = fake.model.chat()
        stream = chat.astream("Hi")
        await anext(stream)
        del stream
        return (await chat.asend("Hi")).text

    assert run(tmp_path, ["Hello.", "Again."], program) == "Again."


def test_a_time_limit_counts_for_the_turn_of_the_chat(tmp_path: Path) -> None:
    async def program(fake: ToolModel) -> None:
        chat = fake.model.chat()
        async with chat.astream("Hi") as stream:
            await anext(stream)
            await asyncio.create_task(chat.asend("Hi", timeout=0.01))

    with pytest.raises(TimeoutError):
        run(tmp_path, ["Hello."], program)


def test_calls_beyond_the_limit_end_the_turn(tmp_path: Path) -> None:
    async def program(fake: ToolModel) -> None:
        await fake.model.chat(tools=[add], max_tool_rounds=1).asend("2 + 3?")

    with failing(0x80070038):
        run(tmp_path, [ADD, ADD], program)


@pytest.mark.parametrize("fields", [{"temperature": -1}, {"choices": ()}, {"timeout": -1}, {"tool_choice": "sub"}])
def test_wrong_arguments_are_told_at_once(tmp_path: Path, fields: Any) -> None:
    async def program(fake: ToolModel) -> None:
        with pytest.raises(ValueError, match=next(iter(fields))):
            fake.model.chat().astream("Hi", **fields)

    run(tmp_path, [], program)


def test_a_tool_in_a_thread_cannot_send_to_its_own_chat(tmp_path: Path) -> None:
    async def program(fake: ToolModel) -> ChatReply:
        chat = fake.model.chat()

        def add(a: int, b: int) -> str:
            return chat.send("2 + 3?").text

        return await chat.asend("2 + 3?", tools=[add])

    assert "it needs a chat of its own" in run(tmp_path, [ADD, "It is 5."], program).tool_calls[0].result


def test_a_tool_in_another_task_cannot_send_to_its_own_chat(tmp_path: Path) -> None:
    async def program(fake: ToolModel) -> ChatReply:
        chat = fake.model.chat()

        async def add(a: int, b: int) -> str:
            return (await asyncio.create_task(chat.asend("2 + 3?"))).text

        return await chat.asend("2 + 3?", tools=[add])

    assert "it needs a chat of its own" in run(tmp_path, [ADD, "It is 5."], program).tool_calls[0].result


def test_a_tool_that_raises_stop_iteration_has_failed(tmp_path: Path) -> None:
    def add(a: int, b: int) -> int:
        raise StopIteration

    async def program(fake: ToolModel) -> ChatReply:
        return await fake.model.chat(tools=[add]).asend("2 + 3?")

    assert run(tmp_path, [ADD, "No idea."], program).tool_calls[0].status is ToolCallStatus.FAILED


def test_a_hook_that_raises_stop_async_iteration_does_not_pass_for_the_end(tmp_path: Path) -> None:
    async def approve(call: ToolCall) -> bool:
        raise StopAsyncIteration

    async def program(fake: ToolModel) -> ChatReply:
        return await fake.model.chat(tools=[add], approve=approve).asend("2 + 3?")

    with pytest.raises(RuntimeError, match="a function of the chat raised StopAsyncIteration"):
        run(tmp_path, [ADD], program)
