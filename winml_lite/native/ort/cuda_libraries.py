"""The CUDA and cuDNN libraries that come as Python packages (`pip install 'onnxruntime-gpu[cuda,cudnn]'`).

The system does not look into Python packages, so ONNX Runtime would not find them: they are loaded here, and the CUDA
provider then uses what is loaded. Where there are no such packages, the libraries of the system serve.
"""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

logger = logging.getLogger("winml_lite.native")

# Each library comes after those that it needs.
_NAMES = ("cudart", "nvJitLink", "cublasLt", "cublas", "nvrtc", "curand", "cufft", "cudnn")


@cache
def load_cuda_libraries() -> tuple[str, ...]:
    """Load the libraries for the rest of the process; return the paths of those that were found and loaded."""
    loaded: list[str] = []
    for path in library_files():
        try:
            ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
        except OSError as error:  # the provider says which one it misses
            logger.info("a CUDA library does not load: %s", error)
        else:
            loaded.append(path)
    return tuple(loaded)


def library_files() -> Iterator[str]:
    """Find the libraries in the installed packages of NVIDIA, in the order in which they can be loaded."""
    for name in _NAMES:
        pattern = f"*/bin/**/{name}[_6]*[0-9].dll" if sys.platform == "win32" else f"*/lib/lib{name}.so.*"
        for folder in _package_folders():
            yield from sorted(str(file) for file in Path(folder).glob(pattern))


def _package_folders() -> list[str]:
    try:
        spec = importlib.util.find_spec("nvidia")
    except ValueError:  # somebody put a module without a spec into sys.modules
        return []
    return list(spec.submodule_search_locations or ()) if spec is not None else []
