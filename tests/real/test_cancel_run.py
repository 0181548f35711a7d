"""`Pipeline.cancel_run` stops a real engine in the middle of a run."""

from __future__ import annotations

from threading import Thread

import numpy as np
import pytest

from fakes.model_files import ModelFiles
from fakes.rig import built
from winml_lite import Runtime, WinMLError

pytestmark = pytest.mark.real


def test_s_lif_08_a_long_run_stops_and_the_pipeline_stays_usable(
    runtime: Runtime, files: ModelFiles, ort: None
) -> None:
    stage, pipeline = built(runtime, files.onnx("slow"))
    stage.bind_input(0, runtime.tensor_from_numpy(np.zeros((64, 64), np.float32)))
    codes: list[int] = []

    def run() -> None:
        try:
            pipeline.run()
        except WinMLError as error:
            codes.append(error.hresult)

    thread = Thread(target=run)
    thread.start()
    while thread.is_alive():
        pipeline.cancel_run()
        thread.join(0.01)
    assert codes == [0x800704C7]
    thread = Thread(target=run)
    thread.start()
    while thread.is_alive():
        pipeline.cancel_run()
        thread.join(0.01)
    assert codes == [0x800704C7, 0x800704C7]
