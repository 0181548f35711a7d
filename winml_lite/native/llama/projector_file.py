"""Checks of a projector file before libmtmd gets it (runtime §2.1: a bad file is an exception).

libmtmd asserts what it does not expect, and there are dozens of projector types with tensors of their own: no list of
rules covers that. So a file that passes the rules below is first loaded in a process of its own, without the model.
Where there is no Python interpreter to start (a frozen program, an embedded interpreter), only the rules hold.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

from ...errors import FILE_CORRUPT, NOT_SUPPORTED, WinMLError
from ...files.gguf import GgufFile
from .library import media_library

_OPEN = "IWinMLStage.CreateMediaEncoderFromFile"
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from winml_lite.native.llama.projector_file import load_alone; load_alone(sys.argv[2])"
)
_SECONDS = 60
_BYTES_PER_SECOND = 20_000_000  # a slow disk
_GATHERED = ("mlp", "mlp_norm", "ldp", "ldpv2", "adapter", "resampler", "minicpmv4_6")
"""Projector types that look positions up, in any type, instead of adding them."""
_ALIGNED = ("deepseek4v",)
"""Projector types that pad an image to a place in the whole prompt."""

_passed: set[tuple[str, int, int]] = set()
"""(path, size, modification time) of files that another process has loaded."""


def check_projector(path: str) -> None:
    """Refuse a file that is no projector or that would end the process (0x80070570), or whose type cannot be used
    (0x80070032)."""
    with GgufFile(path) as file:  # a damaged file is refused here
        problem = _problem(file)
        kind = file.metadata.get("clip.projector_type")
    if kind in _ALIGNED:
        text = f"{path}: rows of {kind} depend on where in the prompt they stand, a segment does not know it"
        raise WinMLError(NOT_SUPPORTED, _OPEN, text)
    if problem is None:
        status = os.stat(path)
        key = path, status.st_size, status.st_mtime_ns
        problem = None if key in _passed else _rehearse(path, status.st_size)
    if problem is not None:
        raise WinMLError(FILE_CORRUPT, _OPEN, f"{path}: {problem}")
    _passed.add(key)


def _problem(file: GgufFile) -> str | None:
    if file.architecture != "clip":
        return f"this is a model of architecture {file.architecture or 'unknown'}, not a projector (clip)"
    for key, value in file.metadata.items():
        if key.endswith("epsilon") and not (isinstance(value, float) and value >= 0 and math.isfinite(value)):
            return f"{key} is {value}, not a number from 0 up"
    kind = file.metadata.get("clip.projector_type")
    if isinstance(kind, str) and kind.startswith("qwen") and not file.metadata.get("clip.vision.block_count", 1):
        return "clip.vision.block_count is 0"
    adds_positions = kind not in _GATHERED
    for tensor in file.tensors.values():
        is_added = _is_vector(tensor.shape) or (adds_positions and tensor.name.endswith("position_embd.weight"))
        if is_added and tensor.type_name != "F32":
            return f"{tensor.name} is {tensor.type_name}, only F32 can be added"
        weight = file.tensors.get(tensor.name.removesuffix("bias") + "weight")
        is_output = tensor.name.startswith("mm.") and tensor.name.endswith(".bias")
        if is_output and weight is not None and len(weight.shape) == 2 and math.prod(tensor.shape) != weight.shape[0]:
            return f"{tensor.name} has {math.prod(tensor.shape)} numbers for {weight.shape[0]} rows"
    return None


def _is_vector(shape: tuple[int, ...]) -> bool:
    return sum(extent > 1 for extent in shape) <= 1


def _rehearse(path: str, size: int) -> str | None:
    """Load the file in another process and return what is wrong with it."""
    name = os.path.basename(sys.executable or "").lower()
    if getattr(sys, "frozen", False) or not name.startswith(("python", "pypy")):
        return None
    command = [sys.executable, "-I", "-c", _PROGRAM, json.dumps([str(folder) for folder in sys.path]), path]
    limit = _SECONDS + size // _BYTES_PER_SECOND
    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(
            command, stdin=quiet, stdout=quiet, stderr=quiet, timeout=limit, creationflags=_FLAGS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"libmtmd does not load it in {limit} seconds"
    except OSError:  # no process may be started here
        return None
    # 1 is an error of Python itself: it says nothing about the file
    return None if done.returncode in (0, 1) else "libmtmd ends the process over it"


_FLAGS: int = getattr(subprocess, "CREATE_NO_WINDOW", 0)


def load_alone(path: str) -> None:
    """Load a projector without a model, and free it. Whether libmtmd refuses it is the business of the real load."""
    api = media_library()
    params = api.mtmd_context_params_default()
    params.use_gpu = False
    params.n_threads = 1
    pointer = api.mtmd_init_from_file(os.fsencode(path), None, params)
    if pointer:
        api.mtmd_free(pointer)
