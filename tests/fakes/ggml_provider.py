"""A second execution provider that runs on every x86-64 Linux: `ggml`, of the distribution `onnxruntime-ggml`.

Its Python module wants another ONNX Runtime and is never imported; `.ci/providers.txt` installs it.
"""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from fakes.model_files import require_engine
from winml_lite import Runtime

OPTIONS = {"weights": "f32"}
"""Its default keeps the weights of matrices as float16."""


def ggml_library() -> Path:
    """Return the library; skip the test where it is not installed."""
    try:
        installed = distribution("onnxruntime-ggml")
    except PackageNotFoundError:
        pytest.skip("onnxruntime-ggml is not installed: pip install --no-deps -r .ci/providers.txt")
    return Path(str(installed.locate_file("onnxruntime_ggml/lib/libonnxruntime_ggml.so")))


@pytest.fixture(scope="session")
def ggml() -> str:
    """The name of the provider, registered for the rest of the process."""
    require_engine("ort")
    os.environ["ORT_GGML_LOG"] = "off"  # it writes to standard error
    with Runtime() as runtime:
        assert runtime.register_execution_provider("ggml", ggml_library()) == ("ggml",)
    return "ggml"
