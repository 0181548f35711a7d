"""The small models of `models/` as files, and whether an engine is there to run them."""

from __future__ import annotations

import os
import sys
from functools import cached_property
from pathlib import Path

import pytest

from winml_lite.native.backend import EngineKey, backend


class ModelFiles:
    """Paths of the small models, each built when first asked for; only then are the builders imported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def onnx(self, name: str) -> str:
        """A graph of `models.onnx_models`, by the name of its function."""
        path = self.folder / f"{name}.onnx"
        if not path.exists():
            from models import onnx_models

            onnx_models.save(getattr(onnx_models, name)(), path)
        return str(path)

    @cached_property
    def external(self) -> tuple[str, bytes]:
        """A graph whose weights lie in `weights.bin` beside it, and the bytes of that file."""
        from models import onnx_models

        folder = self.folder / "external"
        folder.mkdir()
        model, weights = onnx_models.external_weights("weights.bin")
        (folder / "weights.bin").write_bytes(weights)
        return str(onnx_models.save(model, folder / "external.onnx")), weights

    @cached_property
    def gguf(self) -> str:
        """A tiny random decoder."""
        from models import recipes

        return str(recipes.random_gguf(self.folder))

    @cached_property
    def hybrid_gguf(self) -> str:
        """A tiny random decoder with recurrent state and a predictor of its own."""
        from models import recipes

        return str(recipes.hybrid_gguf(self.folder))

    @cached_property
    def gemma3_gguf(self) -> str:
        """A random decoder with a sliding window of 8 tokens."""
        from models import recipes

        return str(recipes.gemma3_gguf(self.folder))

    @cached_property
    def scripted_gguf(self) -> str:
        """A tiny decoder whose answers are known."""
        from models import recipes

        return str(recipes.scripted_gguf(self.folder))

    @cached_property
    def long_gguf(self) -> str:
        """The scripted decoder, declared for 100,000 positions."""
        from models import gguf_models, gguf_writer

        metadata, tensors = gguf_models.scripted_model()
        metadata["llama.context_length"] = 100_000
        return str(gguf_writer.write_gguf(self.folder / "long.gguf", metadata, tensors))

    @cached_property
    def shards(self) -> Path:
        """The first file of a model in several files."""
        from models import recipes

        return recipes.sharded_gguf(self.folder)


def require_engine(key: EngineKey) -> None:
    """Skip the test, saying why, when an engine is not installed; fail it where `check.py --ci` wants all engines."""
    problem = backend(key).describe().problem
    if problem:
        if os.environ.get("WINML_LITE_ENGINES_REQUIRED_BY") == sys.executable:
            pytest.fail(problem)
        pytest.skip(problem)
