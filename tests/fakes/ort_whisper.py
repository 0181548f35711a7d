"""A Whisper folder run with the `onnxruntime` package alone: a second opinion that shares no code with ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

Floats = npt.NDArray[np.float32]


class OrtWhisper:
    """Encoder and decoder; the decoder's caches are arrays that are passed around, in `state` by input name."""

    def __init__(self, folder: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        self._encoder, self._decoder = (
            onnxruntime.InferenceSession(folder / name, options, providers=["CPUExecutionProvider"])
            for name in ("encoder.onnx", "decoder.onnx")
        )

    def hear(self, features: Floats) -> Floats:
        """Run the encoder on (batch, mels, 3000); return the last hidden state. The decoder starts over."""
        names = [port.name for port in self._encoder.get_outputs()]
        heard = dict(zip(names, self._encoder.run(None, {"input_features": features}), strict=True))
        self.state: dict[str, Any] = {}
        for port in self._decoder.get_inputs()[1:]:
            present = port.name.replace("past_key_values", "present")
            empty = np.zeros((len(features), port.shape[1], 0, port.shape[3]), np.float32)
            self.state[port.name] = heard.get(present, empty)
        hidden: Floats = heard["last_hidden_state"]
        return hidden

    def feed(self, *rows: Sequence[int]) -> Floats:
        """Append tokens to each sequence of the batch; return the logits behind the last ones, (batch, vocabulary)."""
        names = [port.name for port in self._decoder.get_outputs()]
        given = {"input_ids": np.array(rows, np.int64), **self.state}
        made = dict(zip(names, self._decoder.run(None, given), strict=True))
        self.state |= {name.replace("present", "past_key_values"): made[name] for name in names[1:]}
        logits: Floats = made["logits"][:, -1]
        return logits

    def say(self, prompt: Sequence[int], tokens: dict[str, Any], most: int = 200) -> list[int]:
        """Return the likeliest tokens behind a prompt, without those that `whisper.json` suppresses."""
        said: list[int] = []
        row = self.feed(prompt)[0]
        while len(said) < most:
            row[tokens["suppress"] + ([] if said else tokens["suppress_at_begin"])] = -np.inf
            token = int(row.argmax())
            if token == tokens["end"]:
                break
            said.append(token)
            row = self.feed([token])[0]
        return said
