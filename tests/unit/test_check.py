"""The check command: what it counts, what it plans, and what it refuses in a wheel."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

import check

TESTS = """
import pytest
def test_good(): pass
def test_bad(): assert False
@pytest.mark.skip(reason="no device")
def test_skipped(): pass
@pytest.mark.skip(reason="no device")
def test_skipped_too(): pass
"""


def write_wheel(folder: Path, name: str, *members: str) -> Path:
    """Write a wheel with empty members."""
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        for member in members:
            archive.writestr(member, "")
    return path


def test_tests_are_counted_and_reasons_grouped(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    outcome = check.run_tests(sys.executable, str(tmp_path))
    assert (outcome.passed, outcome.failed, outcome.skipped) == (1, 1, 2)
    assert outcome.notes == ("2 skipped: no device",)
    assert not outcome.ok


def test_a_broken_test_file_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import nothing_of_this_name")
    outcome = check.run_tests(sys.executable, str(tmp_path))
    assert not outcome.ok
    assert outcome.failed == 1


def test_an_empty_tier_passes_unless_it_must_run(tmp_path: Path) -> None:
    assert check.run_tests(sys.executable, str(tmp_path)).ok
    assert not check.run_tests(sys.executable, str(tmp_path), must_run=True).ok


def test_a_tool_that_fails_is_not_ok() -> None:
    outcome = check.tool("pytest", "--no-such-option")
    assert not outcome.ok
    assert "--no-such-option" in outcome.output


def test_a_failed_command_inside_a_step_carries_its_output() -> None:
    with pytest.raises(check.StepError, match="said before the end"):
        check.must([sys.executable, "-c", "import sys; print('said before the end'); sys.exit(3)"])


def test_fast_plans_four_kinds_of_steps() -> None:
    names = list(check.planned(fast=True, ci=False))
    assert names == ["format", "lint", "types", "rules", "unit"]


def test_the_full_plan_ends_with_other_interpreters_and_the_wheel() -> None:
    names = list(check.planned(fast=False, ci=False))
    assert names[3:10] == ["rules", "unit", "contract", "lifetime", "real", "peer", "perf"]
    assert names[-1] == "wheel"
    assert "python {}.{}".format(*sys.version_info[:2]) not in names


def test_an_unknown_interpreter_is_not_found() -> None:
    assert check.find_interpreter("3.2") is None


def test_a_platform_wheel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(check.StepError, match="not a pure wheel"):
        check.check_wheel_content(write_wheel(tmp_path, "winml_lite-0.1.0-cp311-cp311-linux_x86_64.whl"))


def test_a_wheel_with_another_top_level_name_is_refused(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "winml_lite-0.1.0-py3-none-any.whl", "winml_lite/a.py", "genai/a.py", "tests/a.py")
    with pytest.raises(check.StepError, match="'tests'"):
        check.check_wheel_content(wheel)
