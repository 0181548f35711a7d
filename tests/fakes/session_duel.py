"""Random calls on a session and on the reference beside it, which must hold and answer the same after each."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from fakes.reference_session import ReferenceSession, ReferenceStream, Refused
from fakes.scripted import Composed
from genai import CancellationSource, TextGenerationOptions
from genai.tasks import (
    TextGenerationSequenceDisclosure,
    TextGenerationSession,
    TextGenerationStream,
    TextGenerationUpdate,
)
from winml_lite import WinMLError

E_FAIL, E_NOT_VALID_STATE = 0x80004005, 0x8007139F
ENDS = {
    "read": 12,
    "cancel": 2,
    "close": 2,
    "drop": 1,
    "fail a run": 1,
    "cancel a run": 2,
    "interrupt before a run": 2,
    "interrupt after a run": 2,
}
"""What becomes of an operation, and how often."""
Disclosure = TextGenerationSequenceDisclosure


class Tie(Exception):
    """Two tokens are as likely as rounding can tell: what follows cannot be compared."""


@dataclass
class Duel:
    """Plays random calls on sessions of a stage; `trace` tells them, to read when a comparison has failed."""

    stage: Composed
    make_session: Callable[[], TextGenerationSession]
    reference: ReferenceSession
    random: random.Random
    ids: Sequence[int]
    """Ids to make prompts of."""
    stops: Sequence[str] = ()
    """Texts to stop at, now and then."""
    trace: list[str] = field(default_factory=list)

    def play(self, calls: int) -> None:
        """Make random calls on a new session, and close it."""
        self.session = self.make_session()
        for _ in range(calls):
            kinds = [self._generate, self._continue, self._reset, self._renew]
            self.random.choices(kinds, weights=[10, 8, 1, 1])[0]()
            self.compare()
        self.session.close()

    # --- calls

    def _generate(self) -> None:
        prompt, options = self._prompt(), self._options()
        self._operate(
            f"generate {prompt} {_set(options)}",
            lambda source: self.session.generate_tokens(prompt, options, cancellation=source),
            lambda: self.reference.generate(prompt, options),
        )

    def _continue(self) -> None:
        suffix, options = self._ids(self.random.choice([0, 0, 1, 2, 3, 6])), self._options()
        self._operate(
            f"continue {suffix} {_set(options)}",
            lambda source: self.session.continue_tokens(suffix, options, cancellation=source),
            lambda: self.reference.resume(suffix, options),
        )

    def _reset(self) -> None:
        self.trace.append("reset")
        self.session.reset()
        self.reference.reset()

    def _renew(self) -> None:
        self.trace.append("new session")
        self.session.close()
        self.session = self.make_session()
        self.reference.reset()

    def _operate(
        self,
        call: str,
        start: Callable[[CancellationSource], TextGenerationStream],
        expect: Callable[[], ReferenceStream],
    ) -> None:
        self.trace.append(call)
        source = CancellationSource()
        try:
            expected = expect()
        except Refused as refused:
            with refusing(refused.code):
                start(source)
            return
        if self.random.random() < 0.04:
            self.trace.append("- cancelled before")
            source.cancel()
            expected.is_cancelled = True
        _Reading(self, start(source), expected, source).play()

    def forbidden_calls(self) -> None:
        """Make the calls that an open operation forbids."""
        self.trace.append("- forbidden calls")
        with refusing(E_NOT_VALID_STATE):
            self.session.generate_tokens(self._prompt())
        with refusing(E_NOT_VALID_STATE):
            self.session.continue_tokens()
        with refusing(E_NOT_VALID_STATE):
            self.session.reset()
        with refusing(E_NOT_VALID_STATE):
            self.session.close()

    def compare(self) -> None:
        """Check that both sides hold the same."""
        reference, state = self.reference, self.session.sequence_state
        if reference.may_start_over and state.evaluated_token_count == 0:
            reference.evaluated = 0
        retained = tuple(reference.retained)
        disclosure = Disclosure.RETAINED if retained else Disclosure.NONE
        if reference.state == "RESET_REQUIRED":
            disclosure = Disclosure.UNUSABLE
        assert (self.session.state.name, state.disclosure) == (reference.state, disclosure)
        assert (self.session.retained_token_ids, state.retained_token_count) == (retained, len(retained))
        assert state.evaluated_token_count == reference.evaluated
        position = self.stage.stage.sequence_position
        if retained and (reference.state != "ACTIVE" or position < reference.evaluated):  # it may be drafting
            assert position == reference.evaluated

    # --- arguments

    def _ids(self, count: int) -> list[int]:
        return self.random.choices(self.ids, k=count)

    def _prompt(self) -> list[int]:
        """New ids, or ones that begin as the sequence does; now and then too many, or one that does not exist."""
        capacity, retained, kind = self.reference.capacity, self.reference.retained, self.random.random()
        if kind < 0.03:
            return [*self._ids(2), self.reference.vocabulary_size]
        if kind < 0.13 and capacity < 100:
            return self._ids(capacity + self.random.choice([-2, -1, 0, 1]))
        if kind < 0.6 and retained:
            shared = retained[: self.random.randint(1, len(retained))]
            return (shared + self._ids(self.random.choice([0, 0, 1, 2, 4])))[:capacity]
        return self._ids(self.random.choice([1, 1, 2, 3, 5, 8, 13]))

    def _options(self) -> TextGenerationOptions:
        chance = self.random
        fields: dict[str, Any] = {}
        if chance.random() < 0.2:
            fields["stop_token_ids"] = chance.sample(list(self.ids), len(self.ids) // 8)
        if chance.random() < 0.3:
            fields |= {"temperature": chance.choice([0.5, 1.0, 2.0]), "seed": chance.randint(1, 99)}
            fields |= {"top_k": chance.choice([0, 1, 5]), "top_p": chance.choice([1.0, 0.7])}
            fields |= {"min_p": chance.choice([0.0, 0.1])}
        if chance.random() < 0.2:
            fields |= {"repetition_penalty": 1.3, "repetition_penalty_window": chance.choice([0, 1, 4])}
            fields |= {"presence_penalty": 0.5, "frequency_penalty": 0.25}
        if self.stops and chance.random() < 0.3:
            fields["stop"] = chance.sample(list(self.stops), chance.randint(1, 3))
        return TextGenerationOptions(chance.choice([1, 2, 3, 4, 6, 9, 100]), **fields)


class _Reading:
    """One operation on both sides."""

    def __init__(
        self, duel: Duel, stream: TextGenerationStream, expected: ReferenceStream, source: CancellationSource
    ) -> None:
        self._duel, self._stream, self._expected, self._source = duel, stream, expected, source
        self._fragments: list[str] = []

    def play(self) -> None:
        """Read to the end, or a few tokens until something comes between."""
        duel, stream, expected = self._duel, self._stream, self._expected
        end = duel.random.choices(list(ENDS), weights=list(ENDS.values()))[0]
        count = duel.random.randrange(5)
        duel.trace.append(f"- {end}, after {count}")
        expected.began(duel.session.sequence_state.evaluated_token_count)
        duel.compare()
        while (end == "read" or count > 0) and self._read():
            count -= 1
        if expected.reason is None:
            if duel.random.random() < 0.1:
                duel.forbidden_calls()
            if end == "cancel":
                self._source.cancel()
                expected.is_cancelled = True
            elif end.endswith("a run"):
                self._cut_a_run(end)
            if end in ("close", "drop") or (end.startswith("interrupt") and duel.random.random() < 0.3):
                expected.close()
                if end != "drop":
                    stream.close()
                return  # and dropped
            while self._read():
                pass
        duel.compare()
        self._compare_result()
        stream.close()

    def _read(self) -> bool:
        """Read once on both sides; False at the end."""
        return self._take(self._stream.read_next())

    def _take(self, update: TextGenerationUpdate | None) -> bool:
        """Compare what the stream has given with what the reference gives."""
        token_id = self._expected.read()
        actual = update.token_id if update is not None else None
        if actual != token_id:
            alternatives = self._expected.alternatives
            if actual in alternatives or (actual is None and len(alternatives) > 1):
                raise Tie
            raise AssertionError(f"read {update or self._stream.result}, expected {token_id or self._expected.reason}")
        if update is not None:
            self._fragments.append(update.fragment)
        self._duel.compare()
        return token_id is not None

    def _cut_a_run(self, end: str) -> None:
        """Have the next run of the model fail, cancelled or interrupted, and read until that has happened."""
        duel, expected = self._duel, self._expected
        script = duel.stage.script
        number = script.runs + 1
        if end == "fail a run":
            script.fail_at = {number: WinMLError(E_FAIL, "engine", "scripted failure")}
        elif end == "interrupt before a run":
            script.fail_at = {number: KeyboardInterrupt()}
        elif end == "cancel a run":
            script.call_at = {number: self._source.cancel}
        else:
            script.call_after = {number: _interrupt}
        while expected.runs_next:
            try:
                update = self._stream.read_next()
            except KeyboardInterrupt:
                expected.run_cut(duel.session.sequence_state.evaluated_token_count, is_cancelled=False)
                break
            if script.runs < number:  # a row of a step before
                self._take(update)
            elif end == "cancel a run":
                if update is not None:
                    assert update.token_id is None
                    self._fragments.append(update.fragment)
                expected.run_cut(duel.session.sequence_state.evaluated_token_count, is_cancelled=True)
            else:
                assert end == "fail a run"
                duel.reference.fails_with = E_FAIL
                self._take(update)
        script.fail_at, script.call_at, script.call_after = {}, {}, {}

    def _compare_result(self) -> None:
        result, expected = self._stream.result, self._expected
        assert (result.finish_reason.name, result.error_code) == (expected.reason, expected.error_code)
        assert result.token_ids == tuple(expected.emitted)
        assert result.text == "".join(self._fragments) == expected.text
        assert result.stop_match == expected.stop_match
        assert result.prompt_token_count == expected.prompt_token_count
        assert result.timings.evaluated_prompt_token_count == expected.evaluated_prompt_count
        assert self._stream.read_next() is None


def _set(options: TextGenerationOptions) -> dict[str, object]:
    """What is not as it is by default."""
    default = TextGenerationOptions()
    return {name: value for name, value in asdict(options).items() if value != getattr(default, name)}


def _interrupt() -> None:
    raise KeyboardInterrupt


@contextmanager
def refusing(code: int) -> Iterator[None]:
    """Expect a WinMLError with a code."""
    try:
        yield
    except WinMLError as error:
        assert f"0x{error.hresult:08X}" == f"0x{code:08X}"
    else:
        raise AssertionError(f"nothing was refused, expected 0x{code:08X}")
