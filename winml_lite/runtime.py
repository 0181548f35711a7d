"""`Runtime` (runtime §2): the factory of models, targets, builders and tensors. The work is in the modules of those."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from .audio_factories import AudioFactories
from .builder import BuilderCore, PipelineBuilder
from .checks import enum_value, path_value, text_value
from .devices import DeviceInfo, enumerate_devices
from .direct3d import refuse_d3d12_buffer
from .errors import E_INVALIDARG, WinMLError
from .factories import buffer_storage, dlpack_storage, numpy_storage, raw_storage
from .image_factories import ImageFactories
from .model import Model, load_buffer, load_file, probe_file
from .native_libraries import provider_problems, register_provider
from .pipeline import Pipeline
from .processor_factories import ProcessorFactories
from .resources import export_resources, released_on_failure
from .stage import Stage
from .target import (
    ExecutionTarget,
    RuntimeCore,
    TargetCore,
    check_address,
    create_pinned_target,
    create_target,
    create_target_of,
    target_core,
    tensor_target,
    windows_only,
)
from .tensor import Tensor, bindable
from .token_factories import TokenFactories
from .values import (
    ExecutionTargetKind,
    ExecutionTargetPreference,
    TensorAccessMode,
    TensorDataType,
)
from .video_factories import VideoFactories


class Runtime(TokenFactories, AudioFactories, ImageFactories, VideoFactories, ProcessorFactories):
    """The factory everything starts with. Objects of two Runtimes do not mix; what it made outlives it.

    Constructing one loads no engine: that happens with the first `build`.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(RuntimeCore())

    def close(self) -> None:
        """Close the factory; models, targets, pipelines and tensors go on working."""
        core = self._open
        if core is not None:
            core.close()
        super().close()

    def load_model(self, path: str | os.PathLike[str], *, resources: Mapping[str, Any] | None = None) -> Model:
        """Load a `.onnx`, `.ort` or `.gguf` file: its structure is read, its weights are not.

        `resources` maps external-data locations to buffers, for those that have no file beside the model. Codes:
        0x80070002 no such file, 0x80070003 no such folder, 0x80070005 no permission, 0x80070057 a folder, 0x80070032
        another extension, 0x80070570 unreadable content.
        """
        name = path_value(path)
        status = probe_file(name)
        views = export_resources(resources)
        with released_on_failure(views):
            return load_file(self._core, name, status, views)

    def load_model_from_buffer(self, data: Any, *, resources: Mapping[str, Any] | None = None) -> Model:
        """Load a model from bytes, which are copied if they can change; the format is recognised by content.

        External data comes only from `resources`; those buffers are not copied and stay pinned while the model or a
        stage of it lives. Those of subgraphs, functions and sparse tensors become temporary files during `build`.
        """
        try:
            size = memoryview(data).nbytes
        except TypeError:
            raise ValueError(f"data must be bytes or another buffer, not {type(data).__name__}") from None
        views = export_resources(resources) if size else {}
        with released_on_failure(views):
            return load_buffer(self._core, data, views)

    def owns(self, item: Pipeline | Stage | ExecutionTarget | Tensor) -> bool:
        """Return whether an object comes from this Runtime; objects of two Runtimes do not mix."""
        runtime = self._core
        if isinstance(item, Tensor):
            return item._runtime is runtime
        core = item.underlying_object
        if isinstance(item, Pipeline):
            core = core.stages[0]
        return core.runtime is runtime

    def create_cpu_target(self) -> ExecutionTarget:
        """Return a new target that means this machine's CPU."""
        return ExecutionTarget(TargetCore(self._core, ExecutionTargetKind.CPU))

    def create_target(
        self,
        kind: ExecutionTargetKind | int,
        preference: ExecutionTargetPreference | int = ExecutionTargetPreference.DEFAULT,
    ) -> ExecutionTarget:
        """Return a target of a hardware class: 0x80070490 without such a device, 0x80070032 if none can be listed."""
        core = self._core
        wanted = enum_value(kind, ExecutionTargetKind, "kind")
        return create_target(core, wanted, enum_value(preference, ExecutionTargetPreference, "preference"))

    def enumerate_devices(self) -> list[DeviceInfo]:
        """List the CPU, GPUs and NPUs of this machine, and which engines can use them. Loads the engines."""
        self._core  # noqa: B018  (raises on a closed Runtime)
        return enumerate_devices()

    def register_execution_provider(self, name: str, path: str | os.PathLike[str]) -> tuple[str, ...]:
        """Load a library of execution providers into ONNX Runtime, for all Runtimes of this process; it is not undone.

        The library is code that will be run. `name` is how the library is called from now on, and with some libraries
        how their provider is called; the same library again under its name changes nothing. Returned are the names of
        its providers that found hardware, for `create_ort_execution_target`; () when there is none for them here.
        Installed packages `onnxruntime_ep_*` need no registration.

        0x80070002 no such file, 0x8007007E a library that does not load or brings no provider, 0x80070057 another
        library under a name in use.
        """
        if not text_value(name, "name") or "\0" in name:
            raise ValueError(f"name must be nonempty and free of NUL, not {name!r}")
        file = path_value(path)
        self._core  # noqa: B018  (raises on a closed Runtime)
        return register_provider(name, file)

    def provider_problems(self) -> tuple[str, ...]:
        """Return why execution providers that are built in, installed or registered offer no device, a sentence each.

        Loads ONNX Runtime; () without it, for `engines()` tells what is wrong with an engine.
        """
        self._core  # noqa: B018  (raises on a closed Runtime)
        return provider_problems()

    def create_target_from_adapter(self, adapter: DeviceInfo | int) -> ExecutionTarget:
        """Return a target that is exactly one device of `enumerate_devices()`.

        A stage on it runs there or does not build. The address of a DXCore adapter is 0x80070032.
        """
        if isinstance(adapter, DeviceInfo):
            return create_target_of(self._core, adapter)
        counterpart = "pass an entry of Runtime.enumerate_devices()"
        check_address(adapter, "adapter", counterpart)
        self._core  # noqa: B018  (raises on a closed Runtime)
        raise windows_only("a DXCore adapter", "IWinMLRuntime.CreateTargetFromAdapter", counterpart)

    def create_target_from_d3d12(self, device: int, command_queue: int | None = None) -> ExecutionTarget:
        """Refuse the address of a D3D12 device (0x80070032); use `create_target(GPU, PERFORMANCE)` instead."""
        counterpart = "use create_target(ExecutionTargetKind.GPU, ExecutionTargetPreference.PERFORMANCE)"
        check_address(device, "device", counterpart)
        self._core  # noqa: B018  (raises on a closed Runtime)
        raise windows_only("a D3D12 device", "IWinMLRuntime.CreateTargetFromD3D12", counterpart)

    def create_ort_execution_target(
        self, provider_name: str, kind: ExecutionTargetKind | int, hardware_target: ExecutionTarget | None = None
    ) -> ExecutionTarget:
        """Return a target pinned to one execution provider of ONNX Runtime.

        It uses the device of `hardware_target`, else one of the provider's own devices of that class. An unknown
        provider, or one that cannot use the device, fails at `build` (0x80070490).
        """
        core = self._core
        context = "IWinMLRuntime.CreateOrtExecutionTarget"
        if not text_value(provider_name, "provider_name"):
            raise ValueError("provider_name must not be empty")
        hardware = target_core(hardware_target, "hardware_target")
        try:
            wanted = enum_value(kind, ExecutionTargetKind, "kind")
        except ValueError as error:
            raise WinMLError(E_INVALIDARG, context, str(error)) from None
        if hardware is not None and hardware.runtime is not core:
            raise WinMLError(E_INVALIDARG, context, "hardware_target belongs to another Runtime")
        if hardware is not None and hardware.kind is not wanted:
            raise WinMLError(E_INVALIDARG, context, f"hardware_target is a {hardware.kind.name}, not a {wanted.name}")
        return create_pinned_target(core, provider_name, wanted, hardware)

    def create_pipeline_builder(self) -> PipelineBuilder:
        """Return an empty builder."""
        return PipelineBuilder(BuilderCore(self._core))

    def create_tensor(
        self,
        data_type: TensorDataType | int,
        shape: Iterable[int],
        data: Any = None,
        *,
        target: ExecutionTarget | None = None,
    ) -> Tensor:
        """Make a tensor: zeros, or a copy of `data`, any buffer of exactly as many bytes (else ValueError).

        Elements lie in C order, little-endian; 4-bit ones two to a byte. Shape `()` is one element.
        """
        core = self._core
        keeper = tensor_target(target, core)
        return Tensor(raw_storage(data_type, shape, data), core, keeper)

    def tensor_from_numpy(self, array: npt.ArrayLike, *, target: ExecutionTarget | None = None) -> Tensor:
        """Copy an array or anything array-like; the dtype decides the element type. A scalar becomes shape (1,)."""
        core = self._core
        keeper = tensor_target(target, core)
        return Tensor(numpy_storage(array), core, keeper)

    def tensor_from_buffer(
        self,
        buffer: Any,
        data_type: TensorDataType | int,
        shape: Iterable[int],
        *,
        access: TensorAccessMode | int = TensorAccessMode.COPY,
        target: ExecutionTarget | None = None,
    ) -> Tensor:
        """Make a tensor of a buffer of exactly as many bytes: a copy (COPY), or an alias (READ, READWRITE).

        An alias needs contiguous memory in this machine's byte order, and writable memory for READWRITE. Both sides see
        the changes of the other, and the buffer cannot be resized while the tensor, or a stage it is bound to, holds
        it. An object with `__dlpack__` is a buffer as well.
        """
        core = self._core
        keeper = tensor_target(target, core)
        return Tensor(buffer_storage(buffer, data_type, shape, access), core, keeper)

    def tensor_from_dlpack(
        self,
        source: Any,
        *,
        access: TensorAccessMode | int = TensorAccessMode.READ,
        target: ExecutionTarget | None = None,
    ) -> Tensor:
        """Share the memory of an array of another library (PyTorch, JAX, CuPy's pinned memory, ...) by DLPack.

        dtype and shape are those of `source`. READ and READWRITE alias its memory, which must be contiguous and on the
        CPU; COPY takes any strides. Errors: TypeError without `__dlpack__`, BufferError for memory that cannot be
        shared, ValueError for other dtypes and strides.
        """
        core = self._core
        keeper = tensor_target(target, core)
        return Tensor(dlpack_storage(source, access), core, keeper)

    def tensor_from_d3d12_buffer(
        self,
        resource: Any,
        data_type: TensorDataType | int,
        shape: Iterable[int],
        *,
        offset_in_bytes: int = 0,
        size_in_bytes: int | None = None,
        target: ExecutionTarget | None,
    ) -> Tensor:
        """Check the arguments, then raise NotSupportedError 0x80070032: tensors lie in CPU memory.

        `tensor_from_buffer` and `tensor_from_dlpack` share memory on every system.
        """
        self._core  # noqa: B018  (raises on a closed Runtime)
        refuse_d3d12_buffer(resource, data_type, shape, offset_in_bytes, size_in_bytes, target)

    def tensor_region(
        self, source: Tensor, starts: Sequence[int], extents: Sequence[int], target: ExecutionTarget | None = None
    ) -> Tensor:
        """Copy a box of `source` into a new tensor of shape `extents`."""
        self._core  # noqa: B018  (raises on a closed Runtime)
        bindable(source)
        return source.region(starts, extents, target=target)
