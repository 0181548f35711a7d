"""External weights of a session: files beside the model, or bytes in memory (tensors §10).

The engine reads files by itself. As soon as one location comes from memory it wants all of them from memory, so the
files of the others are mapped for the time of the build.

A tensor of about 2 GiB or more is handed over as a value, by its name: the other way ends there.

The engine takes initializers of the main graph from memory, and those only: what subgraphs, functions and sparse
tensors refer to it looks for in a folder, which for a model from a buffer would be the working directory. Such a model
gets a folder of its own, with what it needs there for the time of the build.
"""

from __future__ import annotations

import ctypes
import mmap
import ntpath
import os
import posixpath
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...errors import E_INVALIDARG, FILE_CORRUPT, FILE_NOT_FOUND, NOT_FOUND, NOT_SUPPORTED, WinMLError
from ...files.artifact import LargeTensor, OnnxArtifact
from ...files.mapped import RegularFile
from ...files.writing import writing_failure
from ...handles import finalizer
from ...storage import Storage, byte_size
from . import api
from .values import value_of

Buffer = memoryview | mmap.mmap

_FOLDER_KEY = b"session.model_external_initializers_file_folder_path"
_NOWHERE = os.path.join(__file__, "no-folder")
"""A folder that cannot be: one below a file."""


@dataclass(frozen=True, slots=True)
class ExternalData:
    """What a session got from memory."""

    passing: object = None
    """To be kept until the session is made."""
    lasting: tuple[Storage, ...] = ()
    """To be kept as long as the session."""


def attach_external_data(options: int, artifact: OnnxArtifact) -> ExternalData:
    """Prepare session options for the artifact's external data; keep the result until the session is made, or longer.

    A location that a buffer model needs and `resources` lacks is 0x80070490; for a file model it is 0x80070002. Too few
    bytes are 0x80070057 in memory and 0x80070570 in a file. A location outside the model's folder is 0x80070057.
    """
    for location in artifact.external_locations:
        _refuse_outside(location)
    if artifact.path is not None:
        buffers = _beside(artifact, os.path.dirname(artifact.path))
        return _attach(options, artifact, buffers)
    buffers = _from_memory(artifact)
    folder = _Folder({location: buffers[location] for location in artifact.nested_locations})
    api.AddSessionConfigEntry(options, _FOLDER_KEY, os.fsencode(folder.path))
    attached = _attach(options, artifact, buffers)
    return replace(attached, passing=(folder, attached.passing))


def _refuse_outside(location: str) -> None:
    """Allow plain relative paths only: nothing absolute, nothing upwards, no engine's mark for a raw address."""
    plain = posixpath.normpath(location.replace("\\", "/"))
    if (
        not location
        or "\0" in location
        or "*" in location
        or posixpath.isabs(plain)
        or ntpath.splitdrive(location)[0]
        or plain.split("/")[0] == ".."
    ):
        raise WinMLError(E_INVALIDARG, "", f"external data location {location!r} leads out of the model's folder")


def _from_memory(artifact: OnnxArtifact) -> dict[str, Buffer]:
    buffers: dict[str, Buffer] = {}
    for location in artifact.external_locations:
        view = artifact.resources.get(location)
        if view is None:
            raise WinMLError(
                NOT_FOUND,
                "",
                f"the model was loaded from a buffer and needs external data: pass resources={{{location!r}: ...}}",
            )
        buffers[location] = _long_enough(artifact, location, view)
    return buffers


def _beside(artifact: OnnxArtifact, folder: str) -> dict[str, Buffer]:
    """Buffers for all locations, or none when every file is there."""
    files = {location: os.path.join(folder, location) for location in artifact.external_locations}
    absent = {location for location, file in files.items() if not os.path.isfile(file)}
    for location in files:
        if location in absent and location not in artifact.resources:
            raise WinMLError(FILE_NOT_FOUND, "", f"external data file {files[location]} is missing")
        if location in absent and location in artifact.nested_locations:
            text = f"external data {location!r} is used in a subgraph, a function or a sparse tensor"
            raise WinMLError(
                NOT_SUPPORTED, "", f"{text}: it must be the file {files[location]}, or load the model from a buffer"
            )
        if location not in absent:
            _check_file(files[location], artifact.external_sizes.get(location, 0))
    if not absent:
        return {}
    return {
        location: _long_enough(artifact, location, artifact.resources[location]) if location in absent else _map(file)
        for location, file in files.items()
    }


def _check_file(file: str, needed: int) -> None:
    size = os.path.getsize(file)
    if size < needed:
        raise WinMLError(
            FILE_CORRUPT, "", f"external data file {file} has {size} bytes, {needed} are needed (truncated?)"
        )


def _long_enough(artifact: OnnxArtifact, location: str, view: memoryview) -> memoryview:
    needed = artifact.external_sizes.get(location, 0)
    if view.nbytes < needed:
        raise WinMLError(E_INVALIDARG, "", f"resource {location!r} has {view.nbytes} bytes, {needed} are needed")
    return view


def _map(file: str) -> Buffer:
    if os.path.getsize(file) == 0:
        return memoryview(b"\0")
    with RegularFile(file) as stream:
        return stream.map()


class _Folder:
    """A private folder with copies of buffers, deleted when nothing uses it any more; without any, a place that is not.

    On Windows files stay in the folder for temporary files as long as the engine has mapped them.
    """

    def __init__(self, buffers: Mapping[str, Buffer]) -> None:
        self.path = _NOWHERE
        if not buffers:
            return
        file = tempfile.gettempdir()
        try:
            file = self.path = tempfile.mkdtemp(prefix="winml-lite-")
            finalizer(self, shutil.rmtree, self.path, True)
            for location, buffer in buffers.items():
                file = os.path.join(self.path, os.path.normpath(location))
                os.makedirs(os.path.dirname(file), exist_ok=True)
                with open(file, "wb") as stream:
                    stream.write(buffer)
        except OSError as error:
            raise writing_failure(file, error, "") from error


def _attach(options: int, artifact: OnnxArtifact, buffers: Mapping[str, Buffer]) -> ExternalData:
    """Hand buffers over. Of most the engine makes copies; those of large tensors it may go on using."""
    if not buffers:
        return ExternalData()
    count = len(buffers)
    arrays = [np.frombuffer(buffer, np.uint8) for buffer in buffers.values()]
    names = (api.PathChar * count)(*(api.native_path(location) for location in buffers))
    addresses = (ctypes.c_void_p * count)(*(array.__array_interface__["data"][0] for array in arrays))
    sizes = (ctypes.c_size_t * count)(*(array.size for array in arrays))
    api.AddExternalInitializersFromFilesInMemory(options, names, addresses, sizes, count)
    large = tuple(_large_tensor(tensor, buffers[tensor.location]) for tensor in artifact.large_tensors)
    if large:
        count = len(large)
        tensor_names = (ctypes.c_char_p * count)(*(tensor.name.encode() for tensor in artifact.large_tensors))
        values = (ctypes.c_void_p * count)(*map(value_of, large))
        api.AddExternalInitializers(options, tensor_names, values, count)
    return ExternalData(arrays, large)


def _large_tensor(tensor: LargeTensor, buffer: Buffer) -> Storage:
    size = byte_size(tensor.data_type, tensor.shape)
    data = np.frombuffer(buffer, np.uint8)[tensor.offset : tensor.offset + size]
    if data.size < size:
        text = f"resource {tensor.location!r} has {data.size} bytes at {tensor.offset}, {tensor.name!r} needs {size}"
        raise WinMLError(E_INVALIDARG, "", text)
    return Storage(data, tensor.data_type, tensor.shape, writable=False)
