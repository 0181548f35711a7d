"""The CUDA libraries in Python packages, with made-up packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from winml_lite.native.ort import cuda_libraries
from winml_lite.native.ort.cuda_libraries import library_files, load_cuda_libraries


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the namespace package `nvidia`."""
    spec = ModuleSpec("nvidia", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr("importlib.util.find_spec", {"nvidia": spec}.get)
    load_cuda_libraries.cache_clear()
    yield tmp_path
    load_cuda_libraries.cache_clear()


def put(folder: Path, *names: str) -> None:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"no library")


def test_what_is_needed_comes_first(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    names = ["libcublas.so.13", "libcublasLt.so.13", "libcudart.so.13", "libcufftw.so.12", "libnvblas.so.13"]
    put(packages, *(f"cu13/lib/{name}" for name in names), "cudnn/lib/libcudnn.so.9", "cudnn/lib/libcudnn_ops.so.9")
    assert [Path(file).relative_to(packages).as_posix() for file in library_files()] == [
        "cu13/lib/libcudart.so.13",
        "cu13/lib/libcublasLt.so.13",
        "cu13/lib/libcublas.so.13",
        "cudnn/lib/libcudnn.so.9",
    ]


def test_the_names_of_windows(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    put(packages, "cu13/bin/x86_64/cudart64_13.dll", "cublas/bin/cublas64_12.dll", "cublas/bin/cublasLt64_12.dll")
    assert [Path(file).name for file in library_files()] == ["cudart64_13.dll", "cublasLt64_12.dll", "cublas64_12.dll"]


def test_what_does_not_load_is_passed_over(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    put(packages, "cu13/lib/libcudart.so.13")
    assert len(list(library_files())) == 1
    assert load_cuda_libraries() == ()


def test_without_packages_of_nvidia(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_libraries, "_package_folders", list)
    assert list(library_files()) == []
