"""Programs for `test_media_lifetime.py`, each run in its own process: `media_programs.py PROGRAM MODEL PROJECTOR`."""

from __future__ import annotations

import gc
import random
import sys
import threading
import time
from typing import Any

import numpy as np
from lifetime.held_memory import assert_keeps_nothing
from lifetime.interrupts import until_interrupted

from winml_lite import Runtime, Tensor

Objects = dict[str, Any]
alive: list[Any] = []
"""What is still there when the interpreter ends."""

ORDERS = 60


def picture(runtime: Runtime) -> Tensor:
    return runtime.tensor_from_numpy(np.full((1, 20, 30, 3), 100, np.uint8))


def make(model: str, projector: str) -> Objects:
    """A decoder with a selected image, and everything that took part."""
    runtime = Runtime()
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(model))
    stage.llama_options().thread_count = 1
    stage.set_sequence_capacity_hint(64)
    pipeline = builder.build()
    encoder = stage.create_media_encoder_from_file(projector)
    rows, layout = encoder.encode(picture(runtime))
    stage.bind_embedding_segment(0, rows, layout)
    names = ("runtime", "stage", "pipeline", "encoder", "rows", "layout")
    return dict(zip(names, (runtime, stage, pipeline, encoder, rows, layout), strict=True))


def exit_with_everything_alive(model: str, projector: str) -> None:
    objects = make(model, projector)
    objects["pipeline"].run()
    objects["stage"].bind_embedding_segment(0, objects["rows"], objects["layout"])
    alive.append(objects)


def exit_while_a_daemon_thread_encodes(model: str, projector: str) -> None:
    objects = make(model, projector)
    image = picture(objects["runtime"])

    def encode_forever() -> None:
        while True:
            objects["encoder"].encode(image)

    threading.Thread(target=encode_forever, daemon=True).start()
    time.sleep(0.3)


def closing_orders(model: str, projector: str) -> None:
    """Close in random orders; run and encode for as long as that is possible."""
    gc.disable()
    chance = random.Random(5)
    for _ in range(ORDERS):
        objects = make(model, projector)
        media = picture(objects["runtime"])
        names = list(objects)
        chance.shuffle(names)
        for name in names:
            objects.pop(name).close()
            if objects.keys() >= {"pipeline", "stage", "rows", "layout"}:
                objects["pipeline"].reset()
                objects["stage"].bind_embedding_segment(0, objects["rows"], objects["layout"])
                objects["pipeline"].run()
            if "encoder" in objects:
                objects["encoder"].encode(media)


def nothing_grows(model: str, projector: str) -> None:
    """Load projectors, encode and run, over and over."""
    assert_keeps_nothing(lambda: make(model, projector)["pipeline"].run(), warm_up=20, times=40)


def interrupts_lose_no_position(model: str, projector: str) -> None:
    """Ctrl-C at random moments of a run of rows: the position is that of before or after, and the next run works."""
    objects = make(model, projector)
    stage, pipeline = objects["stage"], objects["pipeline"]
    count = objects["layout"].position_count
    chance = random.Random(1)
    interrupted = 0
    while interrupted < 40:
        pipeline.reset()
        stage.bind_embedding_segment(0, objects["rows"], objects["layout"])
        try:
            for _ in until_interrupted(chance.uniform(0.001, 0.003)):
                if stage.sequence_position == 0:
                    pipeline.run()
        except KeyboardInterrupt:
            interrupted += 1
        is_selected = stage.underlying_object.executor.segments.selected is not None
        assert (stage.sequence_position, is_selected) in ((0, True), (count, False))
    pipeline.reset()
    stage.bind_embedding_segment(0, objects["rows"], objects["layout"])
    pipeline.run()
    assert stage.sequence_position == count


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
