"""Random calls on a session and on the reference beside it, which must hold and answer the same after each."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fakes.reference_session import Letters, ReferenceSession, ReferenceStream, Refused
from fakes.scripted import VOCABULARY_SIZE, Composed
from genai import CancellationSource, TextGenerationOptions, TokenConstraint
from genai.options import StoppingPredicate
from genai.tasks import (
    TextGenerationSequenceDisclosure,
    TextGenerationSession,
    TextGenerationStream,
    TextGenerationUpdate,
)
from models.table_decoders import TableDecoder
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
_RANDOM = np.random.default_rng(1)
TABLES = TableDecoder(
    VOCABULARY_SIZE,
    following=2 * _RANDOM.standard_normal((VOCABULARY_SIZE, VOCABULARY_SIZE)).astype(np.float32),
    by_length=2 * _RANDOM.standard_normal((20, VOCABULARY_SIZE)).astype(np.float32),
    mixed=6 * _RANDOM.standard_normal((VOCABULARY_SIZE, VOCABULARY_SIZE)).astype(np.float32),
)
"""A model for which every token, its place and the last one matter."""
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
    file: Path
    """Where to save sequences."""
    stops: Sequence[str] = ()
    """Texts to stop at, now and then."""
    letters: Mapping[str, int] = field(default_factory=dict)
    """Letters that are tokens, and their ids: what constraints are made of, now and then."""
    trace: list[str] = field(default_factory=list)
    _saved: tuple[list[int], int] | None = None

    def play(self, calls: int) -> None:
        """Make random calls on a new session, and close it."""
        self.session = self.make_session()
        for _ in range(calls):
            kinds = [self._generate, self._continue, self._reset, self._renew, self._save, self._load]
            self.random.choices(kinds, weights=[20, 16, 2, 2, 2, 2])[0]()
            self.compare()
        self.session.close()

    # --- calls

    def _generate(self) -> None:
        prompt, options, session = self._prompt(), self._options(), self.session
        limit, constraint = self._constraint()

        def start(source: CancellationSource) -> TextGenerationStream:
            if constraint is None:
                return session.generate_tokens(prompt, options, cancellation=source)
            return session.generate_tokens_with_constraint(prompt, constraint, options, cancellation=source)

        call = f"generate {prompt} {_set(options)} {limit or ''}"
        self._operate(call, start, lambda: self.reference.generate(prompt, options, limit))

    def _continue(self) -> None:
        suffix, options = self._ids(self.random.choice([0, 0, 1, 2, 3, 6])), self._options()
        session = self.session
        limit, constraint = self._constraint()

        def start(source: CancellationSource) -> TextGenerationStream:
            if constraint is None:
                return session.continue_tokens(suffix, options, cancellation=source)
            return session.continue_tokens_with_constraint(suffix, constraint, options, cancellation=source)

        call = f"continue {suffix} {_set(options)} {limit or ''}"
        self._operate(call, start, lambda: self.reference.resume(suffix, options, limit))

    def _constraint(self) -> tuple[Letters | None, TokenConstraint | None]:
        """Now and then a constraint."""
        if not self.letters or self.random.random() < 0.8:
            return None, None
        least, most = self.random.choice([(0, 2), (1, 1), (2, 4), (3, 9)])
        limit = Letters(frozenset(self.letters.values()), least, most, frozenset(self.stage.tokenizer.eos_token_ids))
        pattern = f"[{''.join(self.letters)}]{{{least},{most}}}"
        return limit, self.stage.tokenizer.create_constraint_from_regex(pattern)

    def _reset(self) -> None:
        self.trace.append("reset")
        self.session.reset()
        self.reference.reset()

    def _save(self) -> None:
        self.trace.append("save")
        try:
            self._saved = self.reference.saved()
        except Refused as refused:
            with refusing(refused.code):
                self.session.save_state(self.file)
        else:
            self.session.save_state(self.file)

    def _load(self) -> None:
        self.trace.append("load")
        if self._saved is None:
            return
        try:
            self.reference.load(self._saved)
        except Refused as refused:
            with refusing(refused.code):
                self.session.load_state(self.file)
        else:
            self.session.load_state(self.file)

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
            fields["include_stop"] = chance.random() < 0.3
        if chance.random() < 0.15:
            fields["stopping"] = _stops_behind(chance.choice(self.ids))
        if chance.random() < 0.3:
            fields |= self._extensions()
        count = chance.choice([1, 2, 3, 4, 6, 9, 100])
        return TextGenerationOptions(count, min_new_tokens=chance.choice([0, 0, 0, min(count, 3)]), **fields)

    def _extensions(self) -> dict[str, Any]:
        """What changes the choice of a token beyond the eleven official options."""
        chance = self.random
        kinds: list[dict[str, Any]] = [
            {"ignore_eos": True},
            {"logit_bias": {chance.choice(self.ids): 3.0, chance.choice(self.ids): -math.inf}},
            {"no_repeat_ngram_size": chance.randint(1, 3)},
            {"dry_multiplier": 0.8, "dry_allowed_length": chance.randint(1, 2), "dry_sequence_breakers": ()},
            {"typical_p": 0.7},
            {"top_n_sigma": 1.0},
            {"xtc_probability": 0.5, "xtc_threshold": 0.2},
            {"logits_processors": [_halves]},
            {"top_logprobs": chance.choice([0, 3])},
        ]
        chosen: dict[str, Any] = {}
        for kind in chance.sample(kinds, chance.randint(1, 3)):
            chosen |= kind
        return chosen


def _stops_behind(token_id: int) -> StoppingPredicate:
    return lambda token_ids, text: token_ids[-1] == token_id or text.endswith("bb")


def _halves(token_ids: tuple[int, ...], row: Any) -> Any:
    row[::2] /= 2
    return row


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
        if update is not None and update.logprobs is not None:
            assert update.logprobs.token_id == token_id
            for other, logprob in ((token_id, update.logprobs.logprob), *update.logprobs.top):
                assert abs(logprob - self._expected.logprobs[other]) < 1e-4
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
        assert expected.error_code or result.constraint_complete is expected.is_complete
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
