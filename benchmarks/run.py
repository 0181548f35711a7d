"""All benchmarks, one process each, as one table and one JSON file.

python -m benchmarks.run [--quick] [--threads 2] [--only decode prompt] [--json results.json]
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from .measure import QUICK_NOTE, Row, parser, table

BENCHMARKS = (
    "run_overhead",
    "sampler",
    "growth",
    "startup",
    "compile",
    "images",
    "speech",
    *(("speech_peer",) if find_spec("ctranslate2") else ()),
    "decode",
    "native_loop",
    "prompt",
    "chat_turn",
    "constrained",
    "speculation",
    "memory",
)
PEERS = ("llama-cpp-python", "onnxruntime", "onnxruntime-genai", "ctranslate2", "numpy")


def machine() -> dict[str, str]:
    """What the figures were made on."""
    found = {"python": platform.python_version(), "system": platform.platform(), "processor": processor()}
    for name in PEERS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def processor() -> str:
    """The name of the CPU, as far as the system tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
        if names:
            return f"{names[0].split(':', 1)[1].strip()}, {len(names)} CPUs"
    return platform.processor()


def run_benchmark(name: str, options: list[str]) -> list[Row]:
    """Run one benchmark in its own process and read its rows."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "rows.json")
        command = [sys.executable, "-m", f"benchmarks.{name}", *options, "--json", str(report)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            print(f"benchmarks.{name} failed with exit code {done.returncode}", file=sys.stderr)
            return []
        return [Row(**row) for row in json.loads(report.read_text(encoding="utf-8"))]


def main() -> int:
    """Run what was asked for; exit code 1 when a benchmark failed, whatever the ratios are."""
    options = parser(__doc__)
    options.add_argument("--only", nargs="+", choices=BENCHMARKS, default=BENCHMARKS, help="run these only")
    arguments = options.parse_args()
    passed_on = ["--threads", str(arguments.threads), *(["--quick"] if arguments.quick else [])]
    results = {name: run_benchmark(name, passed_on) for name in arguments.only}
    rows = [row for found in results.values() for row in found]
    about = machine()
    print("\n".join(f"{name}: {text}" for name, text in about.items()), end="\n\n")
    print(table(rows))
    if arguments.quick:
        print(f"\n{QUICK_NOTE}")
    if arguments.json:
        fields = [{**{name: getattr(row, name) for name in Row.__slots__}, "met": row.met} for row in rows]
        arguments.json.write_text(json.dumps({"machine": about, "rows": fields}, indent=1), encoding="utf-8")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
