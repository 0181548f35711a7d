"""An object belongs to the thread object that made it, not to a thread id."""

from __future__ import annotations

from threading import Thread

import pytest

from fakes.rig import failing
from genai.affinity import ThreadAffinity
from winml_lite import WinMLError


def test_the_creating_thread_passes() -> None:
    ThreadAffinity().check("thing")


def test_any_other_thread_is_refused_by_name() -> None:
    affinity = ThreadAffinity()
    caught: list[WinMLError] = []

    def check() -> None:
        with failing(0x8001010E) as info:
            affinity.check("thing")
        caught.append(info.value)

    thread = Thread(target=check)
    thread.start()
    thread.join(100)
    assert "thing" in str(caught[0])


def test_a_later_thread_with_the_same_id_is_refused() -> None:
    made: list[ThreadAffinity] = []
    idents: list[int | None] = []
    refused: list[int | None] = []

    def make() -> None:
        made.append(ThreadAffinity())

    def check() -> None:
        try:
            made[0].check("thing")
        except WinMLError:
            refused.append(thread.ident)

    first = Thread(target=make)
    first.start()
    first.join(100)
    for _ in range(20):  # ids are taken again at once on every platform we know
        thread = Thread(target=check)
        thread.start()
        thread.join(100)
        idents.append(thread.ident)
    assert refused == idents


@pytest.mark.parametrize("name", ["TextGenerationSession", "TextGenerationStream"])
def test_the_message_says_how_to_mend_it(name: str) -> None:
    affinity = ThreadAffinity()
    texts: list[str] = []

    def check() -> None:
        try:
            affinity.check(name)
        except WinMLError as error:
            texts.append(str(error))

    thread = Thread(target=check)
    thread.start()
    thread.join(100)
    assert name in texts[0] and "the thread that created it" in texts[0]
