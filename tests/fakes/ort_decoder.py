"""A decoder folder run with the `onnxruntime` package alone: a second opinion that shares no code with ours."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime

Floats = npt.NDArray[np.float32]


class OrtDecoder:
    """One sequence; past and present are swapped as NumPy arrays."""

    def __init__(self, folder: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 2
        path = os.fspath(folder / "model.onnx")
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        config = json.loads((folder / "genai_config.json").read_text(encoding="utf-8"))
        self.eos_token_ids: list[int] = config["model"]["eos_token_id"]
        self.reset()

    def reset(self) -> None:
        """Forget the sequence."""
        self._length = 0
        self._past: dict[str, Floats] = {
            value.name: np.zeros((1, value.shape[1], 0, value.shape[3]), np.float32)
            for value in self._session.get_inputs()
            if value.name.startswith("past_key_values.")
        }

    def feed(self, ids: Sequence[int], padding: int = 0) -> Floats:
        """Append ids and return their logits, float32 [rows, vocabulary]; the first `padding` ids are not looked at."""
        start, self._length = self._length, self._length + len(ids)
        mask, positions = np.ones((1, self._length), np.int64), np.arange(start, self._length, dtype=np.int64)[None]
        mask[:, :padding] = 0
        inputs: dict[str, npt.NDArray[np.generic]] = {
            "input_ids": np.array([ids], np.int64),
            "attention_mask": mask,
            "position_ids": np.maximum(positions - padding, 0),
            **self._past,
        }
        names = {value.name for value in self._session.get_inputs()}
        outputs = self._session.run(None, {name: value for name, value in inputs.items() if name in names})
        presents = [value.name for value in self._session.get_outputs()][1:]
        self._past = {
            name.replace("present", "past_key_values"): value for name, value in zip(presents, outputs[1:], strict=True)
        }
        logits: Floats = outputs[0][0]
        return logits

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """Return at most `count` most likely ids after `prompt`, the one that ends generation included."""
        self.reset()
        ids: list[int] = []
        logits = self.feed(prompt)
        while True:
            ids.append(int(logits[-1].argmax()))
            if len(ids) == count or ids[-1] in self.eos_token_ids:
                return ids
            logits = self.feed(ids[-1:])
