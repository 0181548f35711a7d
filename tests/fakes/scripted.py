"""A scripted decoder, a tokenizer to go with it, and both composed behind the fake engine.

`Words` is a vocabulary of 16 tokens. A script is a function from the ids consumed so far to the next row of logits
(`saying`, `successor`, `majority`, `uniform` on every engine; `sum_state` and functions of a test only on fakes).
`ScriptedDecoder` stands in for the composition of a `SequenceCore`; `composed` makes a pipeline over
`FakeBackend` or over a real engine, and the fixture `compose` does so on all of them.
"""

from __future__ import annotations

import codecs
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fakes.backend import FakeBackend, Script
from fakes.scripted_engine import Extend, ScriptedEngine, build_tables
from genai import Tokenizer
from genai.composition import SinglePipeline
from genai.endpoints import Endpoints
from genai.tasks import (
    Tasks,
    TextGenerationConfiguration,
    TextGenerationExecutionProfile,
    TextGenerationOutputKind,
    TextGenerationSession,
)
from models.gguf_writer import write_gguf
from models.table_decoders import TableDecoder
from winml_lite import ExecutionTarget, ExecutionTargetKind, Pipeline, Runtime, Stage, WinMLError
from winml_lite.native.backend import EngineKey, backend, replaced_backend
from winml_lite.target import RuntimeCore, TargetCore

Row = npt.NDArray[np.float32]
Logits = Callable[[Sequence[int]], Row]
Compose = Callable[..., AbstractContextManager["Composed"]]
"""`composed` for one of the engines, see the fixture `compose`."""

A, B, C, D, LESS, SLASH, S, MORE, E_ACUTE_1, E_ACUTE_2, SPACE, X, Y, EOS, EOT, BOS = range(16)
"""Token ids of the vocabulary: letters, the parts of "</s>", the two bytes of "é", a space, and three specials."""

VOCABULARY_SIZE = 16
SPELLINGS = ("a", "b", "c", "d", "<", "/", "s", ">", "Ã", "©", "Ġ", "x", "y", "<eos>", "<eot>", "<bos>")
"""How byte-level vocabularies store the tokens."""
PIECES = b"a|b|c|d|<|/|s|>|\xc3|\xa9| |x|y|<eos>|<eot>|<bos>".split(b"|")

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'][0] }}{{ message['content'] }}<eot>{% endfor %}"
    "{% if add_generation_prompt %}a{% endif %}"
)


def one_hot(token_id: int, size: int = VOCABULARY_SIZE) -> Row:
    """Return logits that only `token_id` can win."""
    row = np.zeros(size, np.float32)
    row[token_id] = 9.0
    return row


def saying(prompt_length: int, *answer: int) -> TableDecoder:
    """Script `answer` after a prompt of `prompt_length` tokens; its last token repeats."""
    before = np.zeros((prompt_length, VOCABULARY_SIZE), np.float32)
    return TableDecoder(VOCABULARY_SIZE, by_length=np.array([*before, *map(one_hot, answer)]))


def sum_state(size: int = 8) -> Logits:
    """Script the sum of all ids so far, modulo `size`: a token that is lost, doubled or stale changes the next one."""

    def logits(history: Sequence[int]) -> Row:
        return one_hot(sum(history) % size)

    return logits


successor = TableDecoder(
    VOCABULARY_SIZE, following=np.array([one_hot((token + 1) % 4) for token in range(VOCABULARY_SIZE)])
)
"""Scripts a, b, c, d, a, b, c, d: each of the first four tokens is followed by the next one."""

uniform = TableDecoder(VOCABULARY_SIZE)
"""Scripts the logit 0 for every token."""

majority = TableDecoder(
    VOCABULARY_SIZE,
    constant=np.array([0.01, 0.04, 0.03, 0.02, *[0.0] * 12], np.float32),
    mixed=np.array([one_hot(b) if a < 4 else 0 * one_hot(a) for a, b in enumerate([B, C, D, *[A] * 13])]),
)
"""Scripts the token after that of a, b, c, d which occurred most often so far; of equals the first counts.

A token that is lost, doubled or stale changes what comes, though not always the very next token.
"""


@dataclass
class ScriptedDecoder:
    """The composition of a `SequenceCore`, its feed and its state owner in one.

    `before` and `after` hold what is to be raised in which run (from 1), before or after the state has moved; `hooks`
    what is to be called before a run. `runs` are the ids of every run so far, of failed ones too.
    """

    logits: Logits = successor
    capacity: int = 64
    chunk: int = 128
    can_rewind: bool = True
    vocabulary_size: int = VOCABULARY_SIZE
    delay: float = 0.0
    before: dict[int, BaseException] = field(default_factory=dict)
    after: dict[int, BaseException] = field(default_factory=dict)
    hooks: dict[int, Callable[[], object]] = field(default_factory=dict)
    runs: list[list[int]] = field(default_factory=list)
    history: list[int] = field(default_factory=list)
    rewinds: list[int] = field(default_factory=list)
    resets: int = 0
    aborts: int = 0
    releases: int = 0
    readers: set[threading.Thread] = field(default_factory=set)
    refuses_reset: bool = False
    is_closed: bool = False

    # --- the composition

    profile = TextGenerationExecutionProfile.SINGLE_PIPELINE
    output_kind = TextGenerationOutputKind.LOGITS
    keeps_sequence = True
    chooses = False
    pipelines = ()
    segments = None
    speculation = None

    @property
    def feed(self) -> ScriptedDecoder:
        return self

    @property
    def state_owner(self) -> ScriptedDecoder:
        return self

    @property
    def execution_target(self) -> TargetCore:
        return TargetCore(RuntimeCore(), ExecutionTargetKind.CPU)

    @property
    def position(self) -> int:
        return len(self.history)

    def check_prompt(self, length: int) -> None:
        pass

    # --- the feed

    def prepare(self) -> None:
        pass

    def begin(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True

    def step(self, token_id: int, position: int) -> Row:
        return self.run([token_id], position)

    def run(self, ids: list[int], position: int) -> Row:
        self._evaluate(ids, position)
        return self.logits(self.history)

    def skip(self, ids: list[int], position: int) -> None:
        self._evaluate(ids, position)

    def abort(self) -> None:
        self.aborts += 1

    def release_threads(self) -> None:
        self.releases += 1

    def _evaluate(self, ids: list[int], position: int) -> None:
        assert position == len(self.history), f"told {position}, is at {len(self.history)}"
        assert 1 <= len(ids) <= self.chunk
        self.runs.append(ids)
        self.readers.add(threading.current_thread())
        number = len(self.runs)
        if self.delay:
            time.sleep(self.delay)
        if number in self.hooks:
            self.hooks[number]()
        if number in self.before:
            raise self.before[number]
        self.history += ids
        if number in self.after:
            raise self.after[number]

    # --- the state owner and the pipeline

    @property
    def sequence_position(self) -> int:
        return len(self.history)

    @property
    def sequence_capacity(self) -> int:
        return self.capacity

    def rewind(self, position: int) -> None:
        if not self.can_rewind:
            raise WinMLError(0x80070032, "rewind", "this state cannot go back")
        assert position <= len(self.history)
        self.rewinds.append(position)
        del self.history[position:]

    def reset(self) -> None:
        if self.refuses_reset:
            raise WinMLError(0x80004005, "reset", "scripted")
        self.resets += 1
        self.history = []


class ScriptedTokenizer:
    """What a `SequenceCore` asks of a tokenizer, over `PIECES`; adds BOS when `adds_bos`."""

    token_count = VOCABULARY_SIZE
    has_chat_template = False

    def __init__(self, adds_bos: bool = False) -> None:
        self._adds_bos = adds_bos

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        start = [BOS] if self._adds_bos and add_special_tokens else []
        return start + [PIECES.index(character.encode()) for character in text]

    def token_bytes(self, token_id: int) -> bytes:
        return PIECES[token_id]

    def create_decoder(self, *, skip_special_tokens: bool = False, continuation: bool = False) -> ScriptedTextDecoder:
        return ScriptedTextDecoder()

    def close(self) -> None:
        pass


class ScriptedTextDecoder:
    """Joins pieces into whole characters."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def decode_token(self, token_id: int) -> str:
        return self._decoder.decode(PIECES[token_id])


def write_tokenizer(folder: Path, chat_template: str | None = None) -> Path:
    """Write `PIECES` as a `tokenizer.json` folder whose EOS is `<eos>`; no token is added to texts."""
    specials = [{"id": i, "content": SPELLINGS[i], "special": True, **_NO_FLAGS} for i in (EOS, EOT, BOS)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": specials,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {text: i for i, text in enumerate(SPELLINGS)}, "merges": [], **_NO_BPE},
    }
    config = {"eos_token": "<eos>", **({"chat_template": chat_template} if chat_template else {})}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


_NO_FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
_NO_BPE: dict[str, Any] = {
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}


@dataclass
class Composed:
    """A pipeline of one scripted stage, and what belongs to it."""

    runtime: Runtime
    pipeline: Pipeline
    stage: Stage
    target: ExecutionTarget
    tokenizer: Tokenizer
    script: Script
    """What shall happen in which run, and what has happened."""
    engine: FakeBackend | ScriptedEngine
    build: Callable[..., tuple[Stage, Pipeline]]
    """Builds a pipeline of one stage that follows a script; a second argument adds stages behind it."""

    @property
    def backend(self) -> FakeBackend:
        """The fake engine."""
        assert isinstance(self.engine, FakeBackend)
        return self.engine

    @property
    def executor(self) -> Any:
        """The engine's side of the stage."""
        return self.stage.underlying_object.executor

    def follow(self, logits: Logits) -> None:
        """Follow another script from now on; on a real engine with another pipeline, for sessions made from now on."""
        if isinstance(self.engine, FakeBackend):
            self.engine.logits = logits
        else:
            self.stage, self.pipeline = self.build(logits)

    def another(self) -> tuple[Stage, Pipeline]:
        """Another pipeline of the same runtime."""
        return self.build(successor)

    def configuration(self) -> TextGenerationConfiguration:
        """A complete configuration of the stage."""
        return Tasks(self.runtime).create_text_generation_configuration().configure_unified(**self.parts())

    def composition(self) -> SinglePipeline:
        """The stage as a `SequenceCore` drives it."""
        endpoints = Endpoints(self.pipeline, self.stage, 0, self.stage, 0)
        return SinglePipeline(self.runtime, endpoints, self.stage, self.target)

    def parts(self) -> dict[str, Any]:
        """What `configure_unified` takes."""
        return {
            "pipeline": self.pipeline,
            "token_input_stage": self.stage,
            "token_input_index": 0,
            "output_stage": self.stage,
            "output_index": 0,
            "output_kind": TextGenerationOutputKind.LOGITS,
            "state_owner_stage": self.stage,
            "token_target": self.target,
        }

    def session(self, eos_token_ids: Sequence[int] | None = None) -> TextGenerationSession:
        """A session of the stage; the tokenizer's EOS unless told otherwise."""
        task = Tasks(self.runtime).create_text_generation_task(self.tokenizer, eos_token_ids)
        return task.create_session(self.configuration())


@contextmanager
def composed(
    folder: Path,
    logits: Logits = successor,
    *,
    capacity: int = 64,
    chat_template: str | None = None,
    engine: EngineKey = "llama",
    vocabulary: tuple[Path, int] | None = None,
    models: Path | None = None,
) -> Iterator[Composed]:
    """Build a pipeline whose stage follows `logits` and has room for `capacity` positions.

    It runs on a fake of `engine`, or, with a folder `models` for what it needs, on `engine` itself. `vocabulary` is a
    tokenizer and its size, instead of `Words`.
    """
    tokenizer_path, size = vocabulary or (write_tokenizer(folder, chat_template), VOCABULARY_SIZE)
    script = Script()
    replacement: FakeBackend | ScriptedEngine
    if models is None:
        replacement = FakeBackend(script, logits=logits, vocabulary_size=size, declared_capacity=capacity)
    else:
        replacement = ScriptedEngine(backend(engine), script)
    with (
        replaced_backend(engine, replacement),
        Runtime() as runtime,
        Tokenizer.from_file(tokenizer_path) as tokenizer,
    ):

        def build(logits: Logits, extend: Extend | None = None) -> tuple[Stage, Pipeline]:
            if models is None:
                return _built(runtime, folder, engine, extend)
            assert isinstance(logits, TableDecoder), "a real engine follows tables only; take the fake for this script"
            return build_tables(runtime, models, engine, logits, capacity, extend)

        stage, pipeline = build(logits)
        target = runtime.create_cpu_target()
        yield Composed(runtime, pipeline, stage, target, tokenizer, script, replacement, build)


def _built(runtime: Runtime, folder: Path, engine: EngineKey, extend: Extend | None) -> tuple[Stage, Pipeline]:
    """A pipeline of one stage, of a file that says nothing: the fake engine knows its script."""
    if engine == "llama":
        path = write_gguf(folder / "scripted-stage.gguf", {"general.architecture": "llama"})
    else:
        from models.onnx_models import add, save

        path = save(add(), folder / "scripted-stage.onnx")
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(path))
    if extend is not None:
        extend(builder, stage)
    return stage, builder.build()
