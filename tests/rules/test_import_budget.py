"""What an import may load: no engine, no tokenizer, no template engine, and on `import genai` not even NumPy."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from rules.project import ROOT

HEAVY = {"onnxruntime", "onnx", "tokenizers", "jinja2", "llama_cpp", "gguf", "huggingface_hub", "onnxruntime_genai"}
NATIVE = ("onnxruntime", "llama", "ggml", "mtmd")
HELP = "import contextlib, io; from cli.main import main\nwith contextlib.redirect_stdout(io.StringIO()):\n "
REPORT = """
import json, pathlib, sys
maps = pathlib.Path("/proc/self/maps")
mapped = maps.read_text().split() if maps.exists() else []
libraries = sorted({pathlib.Path(line).name for line in mapped if ".so" in line})
print(json.dumps([sorted({name.split(".")[0] for name in sys.modules}), libraries]))
"""
PROGRAMS = {
    "import winml_lite": "import winml_lite",
    "import genai": "import genai",
    "import genai.runtime": "import genai.runtime",
    "Runtime()": "import winml_lite; winml_lite.Runtime().close()",
    "winml-lite --help": HELP + "try: main(['--help'])\n except SystemExit: pass",
}


def loaded_by(program: str) -> tuple[set[str], list[str]]:
    """Top-level modules and shared libraries (Linux) in a fresh interpreter after a program."""
    command = [sys.executable, "-c", program + "\n" + REPORT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=500)
    modules, libraries = json.loads(done.stdout.splitlines()[-1])
    return set(modules), libraries


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_heavy_package_and_no_engine_is_loaded(program: str) -> None:
    modules, libraries = loaded_by(PROGRAMS[program])
    assert modules & HEAVY == set()
    assert [name for name in libraries if any(engine in name for engine in NATIVE)] == []


@pytest.mark.parametrize("program", ["import winml_lite", "import genai", "winml-lite --help"])
def test_numpy_is_not_loaded_by_imports_and_help(program: str) -> None:
    modules, _ = loaded_by(PROGRAMS[program])
    assert "numpy" not in modules
