"""Programs for `test_embedding_lifetime.py`, each run in its own process: `embedding_programs.py PROGRAM MODEL`."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from pathlib import Path

from lifetime.held_memory import assert_keeps_nothing
from lifetime.interrupts import until_interrupted

import genai
from winml_lite import Runtime, WinMLError
from winml_lite.native.llama.embedding import EmbeddingContext


def a_forked_child_is_told(path: str) -> None:
    model = genai.load_embedding(path, threads=1)
    model.embed("the cat")
    child = os.fork()
    if child == 0:
        try:
            model.embed("the cat")
        except (RuntimeError, WinMLError):
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert model.embed("the cat").shape == (32,)


def exit_in_the_midst_of_a_run(path: str) -> None:
    """A daemon thread whose run is stopped by the end of the interpreter ends with it, and says nothing."""
    runtime = Runtime()
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(path))
    stage.llama_options().embeddings = True
    pipeline = builder.build()
    for index in (0, 1):
        stage.bind_input(index, runtime.tensor_from_tokens([1]))
    has_begun = threading.Event()

    def stopped(context: EmbeddingContext, *_: object) -> int:
        context._activity.running = threading.get_ident()
        has_begun.set()
        while not context._abort.is_set:
            time.sleep(0.001)
        context._activity.running = 0
        return 2

    EmbeddingContext._decode = stopped  # type: ignore[method-assign, assignment]
    threading.Thread(target=pipeline.run, daemon=True).start()
    has_begun.wait()


def states_grow_no_memory(path: str) -> None:
    state = Path(path).with_suffix(".state")
    with genai.load(path, threads=1) as model:
        model.generate("the cat sat on a mat", max_new_tokens=30)

        def cycle() -> None:
            model.save_state(state)
            model.load_state(state)

        assert_keeps_nothing(cycle, warm_up=200, times=200, each=128)


def interrupts_leave_everything_whole(path: str) -> None:
    state, second = Path(path).with_suffix(".first"), Path(path).with_suffix(".second")
    chance = random.Random(7)
    prompt = "the cat sat on a mat " * 8
    with genai.load(path, threads=1) as model:
        wanted = model.generate(prompt, max_new_tokens=5).token_ids
        model.save_state(state)
        scores = model.score(prompt, [" the", " dog"])
        interrupted = 0
        while interrupted < 25:
            try:
                for _ in until_interrupted(chance.uniform(0.003, 0.03)):
                    model.load_state(state)
                    model.save_state(second)
                    model.score(prompt, [" the", " dog"])
            except KeyboardInterrupt:
                interrupted += 1
        for file in (state, second):
            model.load_state(file)
            assert model.generate(prompt, max_new_tokens=5).token_ids == wanted
        assert model.score(prompt, [" the", " dog"]) == scores
    assert not list(Path(path).parent.glob(".*.part"))


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
