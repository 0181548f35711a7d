"""The one command that says whether the project is sound. Standard library only, any operating system.

    python check.py          format, lint, types, test tiers, other interpreters, the wheel; stops at the first failure
    python check.py --fast   format, lint, types, rules and unit tests
    python check.py --fix    lets ruff format and repair first
    python check.py --ci     as without options; a tier in which no test ran is a failure, and so is a missing engine

One line per step with its time; below a test tier, what was skipped and why. The last line sums the tests of all steps.
It runs in the environment it is started with: `pip install -e '.[test]'` prepares one.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent
CACHE = ROOT / ".check"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TYPED = ("winml_lite", "genai", "cli", "models", "tests", "examples", "benchmarks", "check.py")
TIERS = ("rules", "unit", "contract", "lifetime", "real", "peer", "perf")
FAST_TIERS = ("rules", "unit")
SHIPPED = ("pyproject.toml", "README.md", "LICENSE", "winml_lite", "genai", "cli")

WHEEL_PROGRAM = """
import sys
import genai, winml_lite
assert not winml_lite.__file__.startswith(sys.argv[2]), winml_lite.__file__
with winml_lite.Runtime() as runtime, runtime.load_model(sys.argv[1] + "/model.onnx") as model:
    print(model.schema().input_count, "inputs")
with genai.load(sys.argv[1]) as language_model:
    print(language_model.chat().send("What is the capital of France?", max_new_tokens=32).text)
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one step found."""

    ok: bool
    summary: str = ""
    notes: tuple[str, ...] = ()
    output: str = ""
    """Shown only when the step failed."""
    passed: int = 0
    failed: int = 0
    skipped: int = 0


class StepError(Exception):
    """A command inside a step failed; the text is its output."""


def execute(command: Sequence[str | Path], folder: Path = ROOT) -> tuple[int, str]:
    """Run a command without standard input; return its exit code and its mixed output."""
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    return done.returncode, done.stdout


def must(command: Sequence[str | Path], folder: Path = ROOT) -> str:
    """Run a command that has to succeed and return its output."""
    code, output = execute(command, folder)
    if code != 0:
        raise StepError(f"{' '.join(str(part) for part in command)}\n{output}")
    return output


def tool(*arguments: str) -> Outcome:
    """Run a tool of this environment as `python -m ...`."""
    code, output = execute([sys.executable, "-m", *arguments])
    return Outcome(code == 0, output=output)


def run_tests(python: str | Path, *arguments: str, must_run: bool = False) -> Outcome:
    """Run pytest and count from its report, so that nothing is read out of decorated text."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        code, output = execute([python, "-m", "pytest", "-q", "-rfE", f"--junitxml={report}", *arguments])
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    reasons = Counter(mark.get("message") or "no reason given" for case in cases for mark in case.iter("skipped"))
    failed = sum(1 for case in cases if case.find("failure") is not None or case.find("error") is not None)
    skipped = reasons.total()
    passed = len(cases) - failed - skipped
    nothing_collected = code == 5
    ok = failed == 0 and (code == 0 or nothing_collected) and not (must_run and passed == 0)
    return Outcome(
        ok,
        f"{passed} passed" + (f", {failed} failed" if failed else "") + (f", {skipped} skipped" if skipped else ""),
        tuple(f"{count} skipped: {reason}" for reason, count in reasons.most_common()),
        output or "no test ran",
        passed,
        failed,
        skipped,
    )


def venv_python(folder: Path) -> Path:
    """The interpreter of a virtual environment."""
    return folder / "Scripts" / "python.exe" if os.name == "nt" else folder / "bin" / "python"


def candidates(version: str) -> Iterator[Sequence[str]]:
    """Commands that may start this Python version, the surest first."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for folder in sorted(pyenv.glob(f"{version}.*"), reverse=True):
        yield (str(folder / ("python.exe" if os.name == "nt" else "bin/python")),)
    yield (f"python{version}",)
    yield ("py", f"-{version}")


def find_interpreter(version: str) -> str | None:
    """The path of an interpreter of this version, or None."""
    program = "import sys; print(sys.executable); print('%d.%d' % sys.version_info[:2])"
    for command in candidates(version):
        if shutil.which(command[0]) is None:
            continue
        code, output = execute([*command, "-c", program])
        lines = output.split("\n")
        if code == 0 and lines[1] == version:
            return lines[0]
    return None


def prepared_python(version: str, interpreter: str) -> Path:
    """A cached virtual environment of another interpreter with what the tests without an engine need."""
    wanted = [r for r in PROJECT["optional-dependencies"]["test"] if r.startswith("pytest")]
    requirements = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["media"], *wanted]
    digest = hashlib.sha256("\n".join([interpreter, *requirements]).encode()).hexdigest()[:8]
    folder = CACHE / f"python{version}-{digest}"
    python, complete = venv_python(folder), folder / "complete"
    if not complete.exists():
        for outdated in CACHE.glob(f"python{version}-*"):
            shutil.rmtree(outdated)
        must([interpreter, "-m", "venv", folder])
        must([python, "-m", "pip", "install", "--quiet", "--only-binary=:all:", *requirements])
        complete.touch()
    return python


def other_interpreter(version: str) -> Outcome:
    """Unit and contract tests on another interpreter; what cannot be prepared is said, and is no failure."""
    interpreter = find_interpreter(version)
    if interpreter is None:
        return Outcome(True, "not run: not found")
    try:
        python = prepared_python(version, interpreter)
    except StepError as error:
        last = str(error).strip().splitlines()[-1]
        return Outcome(True, "not run: its packages cannot be installed", (last,))
    return run_tests(python, "-m", "not real", "tests/unit", "tests/contract")


def build_wheel(folder: Path) -> Path:
    """Build the wheel from a clean copy of what is shipped, through an sdist where `build` is installed."""
    source, output = folder / "source", folder / "dist"
    source.mkdir()
    for name in SHIPPED:
        if Path(ROOT, name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, source / name)
    if execute([sys.executable, "-m", "build", "--version"], source)[0] == 0:
        must([sys.executable, "-m", "build", "--outdir", output, source], folder)
    else:
        must([sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", output, source], folder)
    return next(output.glob("*.whl"))


def check_wheel_content(wheel: Path) -> None:
    """The wheel is pure and holds the two packages and nothing else."""
    if not wheel.name.endswith("-py3-none-any.whl"):
        raise StepError(f"not a pure wheel: {wheel.name}")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    wanted = {"winml_lite", "genai", f"winml_lite-{PROJECT['version']}.dist-info"}
    if tops != wanted:
        raise StepError(f"top-level names of the wheel are {sorted(tops)}, wanted {sorted(wanted)}")
    missing = {"winml_lite/py.typed", "genai/py.typed", "winml_lite/cli/main.py", "genai/catalog.toml"} - set(names)
    if missing:
        raise StepError(f"the wheel lacks {sorted(missing)}")


def wheel_smoke() -> Outcome:
    """Build the wheel, install it in a fresh environment, and use it from another directory."""
    with tempfile.TemporaryDirectory(prefix="winml-lite-wheel-") as name:
        folder = Path(name)
        wheel = build_wheel(folder)
        check_wheel_content(wheel)
        recipe = "import sys; from models.recipes import scripted_onnx; print(scripted_onnx(sys.argv[1], 'plain'))"
        model = must([sys.executable, "-c", recipe, folder / "model"]).strip().splitlines()[-1]
        elsewhere = folder / "elsewhere"
        elsewhere.mkdir()
        python = venv_python(folder / "venv")
        must([sys.executable, "-m", "venv", folder / "venv"])
        must([python, "-m", "pip", "install", "--quiet", wheel])
        command = python.with_name("winml-lite.exe" if os.name == "nt" else "winml-lite")
        version = must([command, "--version"], elsewhere)
        if PROJECT["version"] not in version:
            raise StepError(f"winml-lite --version says {version!r}, not {PROJECT['version']}")
        must([command, "--help"], elsewhere)
        said = must([python, "-c", WHEEL_PROGRAM, model, str(ROOT)], elsewhere)
        if "Paris is the capital of France" not in said:
            raise StepError(f"the installed wheel answered {said!r}")
    return Outcome(True, wheel.name)


def planned(fast: bool, ci: bool) -> dict[str, Callable[[], Outcome]]:
    """The steps by name, in order of speed."""
    steps: dict[str, Callable[[], Outcome]] = {
        "format": partial(tool, "ruff", "format", "--check", "."),
        "lint": partial(tool, "ruff", "check", "."),
        "types": partial(tool, "mypy", *TYPED),
    }
    for tier in FAST_TIERS if fast else TIERS:
        steps[tier] = partial(run_tests, sys.executable, f"tests/{tier}", must_run=ci)
    if fast:
        return steps
    running = "{}.{}".format(*sys.version_info[:2])
    prefix = "Programming Language :: Python :: 3."
    supported = [line.rsplit(" ", 1)[1] for line in PROJECT["classifiers"] if line.startswith(prefix)]
    for version in supported:
        if version != running:
            steps[f"python {version}"] = partial(other_interpreter, version)
    return {**steps, "wheel": wheel_smoke}


def perform(name: str, run: Callable[[], Outcome]) -> Outcome:
    """Run one step and print its line."""
    if sys.stdout.isatty():
        print(f"       {name}", end="\r", flush=True)
    start = time.monotonic()
    try:
        outcome = run()
    except StepError as error:
        outcome = Outcome(False, output=str(error))
    seconds = time.monotonic() - start
    print(f"{'ok' if outcome.ok else 'FAILED':<7}{name:<13}{seconds:7.1f} s  {outcome.summary}".rstrip())
    for note in outcome.notes:
        print(f"         {note}")
    if not outcome.ok:
        print(outcome.output)
    sys.stdout.flush()
    return outcome


def main() -> int:
    """Run the planned steps; exit code 0 only when all of them are sound."""
    parser = argparse.ArgumentParser(description="Check the project; see the head of check.py.")
    parser.add_argument("--fast", action="store_true", help="format, lint, types, rules and unit tests only")
    parser.add_argument("--fix", action="store_true", help="let ruff format and repair first")
    parser.add_argument("--ci", action="store_true", help="an empty tier or a missing engine is a failure")
    arguments = parser.parse_args()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if arguments.fix:
        print(tool("ruff", "check", "--fix", "--quiet", ".").output, tool("ruff", "format", ".").output, sep="", end="")
    if arguments.ci:
        os.environ["WINML_LITE_ENGINES_REQUIRED_BY"] = sys.executable  # read by tests/fakes/model_files.py
    done: dict[str, Outcome] = {}
    for name, run in planned(arguments.fast, arguments.ci).items():
        done[name] = perform(name, run)
        if not done[name].ok:
            break
    tiers = [name for name, outcome in done.items() if name in TIERS and outcome.passed]
    print(f"test tiers that ran: {', '.join(tiers) or 'none'} (Python {sys.version.split()[0]})")
    passed, skipped = sum(o.passed for o in done.values()), sum(o.skipped for o in done.values())
    failed = sum(max(1, o.failed) for o in done.values() if not o.ok)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
