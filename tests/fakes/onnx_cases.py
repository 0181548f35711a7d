"""The node cases that the `onnx` package ships, and two ways to run one: the object model and `InferenceSession`.

A case is a graph of one operator, or of those that a function stands for, with inputs and the outputs that are expected
of every runtime. Tensors go in and out as element type, shape and bytes, so that no type needs a counterpart in NumPy.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

from winml_lite import Model, Pipeline, Runtime, Stage, Tensor, TensorLockMode
from winml_lite.values import BITS, FROM_ONNX_TYPE, TO_ONNX_TYPE

Value = tuple[int, tuple[int, ...], bytes]
"""ONNX element type, shape, bytes in C order; two 4-bit elements lie in a byte, the first in its low half."""

_RANDOM = {
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}
_FOUR_BITS = (TensorProto.UINT4, TensorProto.INT4)
_BFLOAT16_TOLERANCE = 2**-6  # two units in the last place, as the runner of the package allows


@dataclass(frozen=True)
class Case:
    """One node case."""

    name: str
    proto: onnx.ModelProto
    given: tuple[Any, ...]
    wanted: tuple[Any, ...]
    rtol: float
    atol: float

    @cached_property
    def model(self) -> bytes:
        return bytes(self.proto.SerializeToString())

    @cached_property
    def foreign_inputs(self) -> dict[str, str]:
        """Inputs that no tensor of the object model can be, with what the model declares there."""
        return dict(_foreign(self.proto.graph.input))

    @cached_property
    def foreign_outputs(self) -> dict[str, str]:
        return dict(_foreign(self.proto.graph.output))

    @property
    def is_random(self) -> bool:
        """Whether each run of a session may have other outputs."""
        return any(node.op_type in _RANDOM for node in self.proto.graph.node)

    @property
    def is_expanded(self) -> bool:
        """Whether the graph is the body of the function that an operator stands for."""
        return "_expanded" in self.name

    @property
    def is_foreign(self) -> bool:
        return bool(self.foreign_inputs or self.foreign_outputs)

    @cached_property
    def inputs(self) -> list[Value]:
        return [packed(value) for value in self.given]

    @cached_property
    def expected(self) -> list[Value]:
        return [packed(value) for value in self.wanted]

    def accepts(self, outputs: Sequence[Value]) -> bool:
        """Whether these are the expected outputs, within the tolerance of the case."""
        return len(outputs) == len(self.expected) and all(
            is_close(value, expected, self.rtol, self.atol)
            for value, expected in zip(outputs, self.expected, strict=True)
        )


def node_cases() -> list[Case]:
    """Return all cases of the installed `onnx` package."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # expected values come out of overflows and divisions by zero
        found = collect_testcases(None)
    cases = []
    for case in found:
        (given, wanted), *others = case.data_sets
        assert not others, case.name
        cases.append(Case(case.name, case.model, tuple(given), tuple(wanted), case.rtol, case.atol))
    return cases


def packed(value: Any) -> Value:
    """Return an array, a NumPy scalar or a TensorProto as a value."""
    if isinstance(value, TensorProto):
        code, array = value.data_type, numpy_helper.to_array(value)
    else:
        array = np.asarray(value)
        code = helper.np_dtype_to_tensor_dtype(array.dtype)
    return code, array.shape, _bytes_of(array, code)


def _bytes_of(array: npt.NDArray[Any], code: int) -> bytes:
    flat = np.ascontiguousarray(array).reshape(-1)
    if code not in _FOUR_BITS:
        return flat.tobytes()
    halves = flat.view(np.uint8) & 15
    halves = np.append(halves, np.zeros(halves.size % 2, np.uint8))
    return (halves[::2] | halves[1::2] << 4).tobytes()


def array_of(value: Value) -> npt.NDArray[Any]:
    """Return a value as an array that NumPy can compute with: BFLOAT16 as float32, 4-bit elements as bytes."""
    code, shape, data = value
    if code in _FOUR_BITS:
        return np.frombuffer(data, np.uint8)
    if code == TensorProto.BFLOAT16:
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return np.frombuffer(data, helper.tensor_dtype_to_np_dtype(code)).reshape(shape)


def is_close(value: Value, expected: Value, rtol: float, atol: float) -> bool:
    """Whether two values are of one type and shape, and equal within a tolerance."""
    if value[:2] != expected[:2]:
        return False
    if value[0] == TensorProto.BFLOAT16:
        rtol = max(rtol, _BFLOAT16_TOLERANCE)
    return np.allclose(array_of(value), array_of(expected), rtol, atol, equal_nan=True)


def _foreign(ports: Sequence[onnx.ValueInfoProto]) -> Iterator[tuple[str, str]]:
    kinds = {"sequence_type": "a sequence", "map_type": "a map", "optional_type": "an optional value"}
    for port in ports:
        kind = port.type.WhichOneof("value")
        if kind != "tensor_type":
            yield port.name, kinds[kind]
        elif port.type.tensor_type.elem_type not in FROM_ONNX_TYPE:
            yield port.name, f"a tensor of {TensorProto.DataType.Name(port.type.tensor_type.elem_type)}"


def with_free_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with free extents in all inputs and outputs of unknown rank."""
    free = onnx.ModelProto()
    free.CopyFrom(proto)
    for port in free.graph.input:
        for dimension in port.type.tensor_type.shape.dim:
            dimension.Clear()
    for port in free.graph.output:
        port.type.tensor_type.ClearField("shape")
    del free.graph.value_info[:]
    return free


# The engine alone


def session(model: bytes) -> onnxruntime.InferenceSession:
    """Make a session on one thread of the CPU, with the optimisations that are the default."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run_session(made: onnxruntime.InferenceSession, inputs: Sequence[Value]) -> list[Value]:
    """Run a session whose inputs and outputs are tensors."""
    names = [port.name for port in made.get_inputs()]
    feed = {name: _engine_value(value) for name, value in zip(names, inputs, strict=True)}
    return [_value_of(produced) for produced in made.run_with_ort_values(None, feed)]


def _engine_value(value: Value) -> onnxruntime.OrtValue:
    code, shape, data = value
    made = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(shape), code)
    assert made.tensor_size_in_bytes() == len(data)
    if data:
        ctypes.memmove(made.data_ptr(), data, len(data))
    return made


def _value_of(produced: onnxruntime.OrtValue) -> Value:
    size = produced.tensor_size_in_bytes()
    data = ctypes.string_at(produced.data_ptr(), size) if size else b""
    return produced.element_type(), tuple(produced.shape()), data


# The object model


def stage_of(runtime: Runtime, model: Model) -> tuple[Pipeline, Stage]:
    """Build a pipeline of one stage, on one thread of the CPU."""
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model, runtime.create_cpu_target())
    stage.ort_options().set_thread_count(1)
    return builder.build(), stage


def tensor_of(runtime: Runtime, value: Value) -> Tensor:
    code, shape, data = value
    return runtime.create_tensor(FROM_ONNX_TYPE[code], shape, data)


def value_of(tensor: Tensor) -> Value:
    data_type, shape = tensor.desc()
    with tensor.lock(TensorLockMode.READ) as lock:
        return TO_ONNX_TYPE[data_type], shape, bytes(lock.data())


def run_requested(pipeline: Pipeline, stage: Stage, count: int) -> list[Value]:
    """Run once with outputs in fresh memory."""
    for index in range(count):
        stage.request_output(index)
    pipeline.run()
    return [value_of(stage.output(index)) for index in range(count)]


def run_bound(runtime: Runtime, pipeline: Pipeline, stage: Stage, values: Sequence[Value]) -> list[Value]:
    """Run once with outputs in tensors of the caller, of the types and shapes of `values`."""
    tensors = [runtime.create_tensor(FROM_ONNX_TYPE[code], shape) for code, shape, _ in values]
    for index, tensor in enumerate(tensors):
        stage.bind_output(index, tensor)
    pipeline.run()
    return [value_of(tensor) for tensor in tensors]


def grown(value: Value) -> Value:
    """Return zeros of the same type in a shape that is one longer."""
    code, shape, _ = value
    longer = (shape[0] + 1, *shape[1:]) if shape else (2,)
    size = (int(np.prod(longer)) * BITS[FROM_ONNX_TYPE[code]] + 7) // 8
    return code, longer, bytes(size)
