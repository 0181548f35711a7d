"""Any ONNX graph on the object model. Without an argument: an edge detector, built here and run on a drawn disc.

python examples/onnx_graph.py            edges of a disc
python examples/onnx_graph.py MODEL      the ports of a graph, and one run of it with zeros
"""

from __future__ import annotations

import argparse

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper

from winml_lite import Model, Runtime, TensorDataType

FREE_DIMENSION = 0xFFFFFFFFFFFFFFFF


def edge_detector() -> bytes:
    """Sobel filter: image f32 [1, 1, H, W] -> edges f32 [1, 1, H, W], the length of the gradient."""
    sobel = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], np.float32)
    kernels = np.stack([sobel, sobel.T])[:, None]
    nodes = [
        helper.make_node("Conv", ["image", "kernels"], ["gradient"], pads=[1, 1, 1, 1]),
        helper.make_node("ReduceL2", ["gradient", "channel"], ["edges"], keepdims=1),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, "height", "width"])
    edges = helper.make_tensor_value_info("edges", TensorProto.FLOAT, [1, 1, "height", "width"])
    constants = [
        numpy_helper.from_array(kernels, "kernels"),
        numpy_helper.from_array(np.array([1], np.int64), "channel"),
    ]
    graph = helper.make_graph(nodes, "edges", [image], [edges], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(model.SerializeToString())


def run_once(runtime: Runtime, model: Model, inputs: list[npt.NDArray[np.generic]]) -> list[npt.NDArray[np.generic]]:
    """Bind the inputs by position, run, and return every output."""
    with runtime.create_pipeline_builder() as builder:
        stage = builder.add_model_stage(model)
        count = model.schema().output_count
        for index, array in enumerate(inputs):
            stage.bind_input(index, runtime.tensor_from_numpy(array))
        for index in range(count):
            stage.request_output(index)
        with builder.build() as pipeline:
            pipeline.run()
            return [stage.output(index).to_numpy() for index in range(count)]


def draw_disc(size: int) -> npt.NDArray[np.float32]:
    """A white disc on black, f32 [1, 1, size, size]."""
    y, x = np.mgrid[:size, :size] - (size - 1) / 2
    inside: npt.NDArray[np.bool_] = np.hypot(x, y) < size / 3
    return inside.astype(np.float32)[None, None]


def show_edges(runtime: Runtime) -> None:
    """Print the edges of a disc."""
    with runtime.load_model_from_buffer(edge_detector()) as model:
        (edges,) = run_once(runtime, model, [draw_disc(24)])
    for row in edges[0, 0]:
        print("".join("##" if value > 1 else "  " for value in row).rstrip())


def show_graph(runtime: Runtime, path: str) -> None:
    """Print the ports of a graph, and the shapes that one run with zeros gives; a free dimension is taken as 1."""
    with runtime.load_model(path) as model:
        names, schema = model.ort_schema(), model.schema()
        zeros: list[npt.NDArray[np.generic]] = []
        for index, (data_type, shape) in enumerate(schema.inputs()):
            text = ", ".join("?" if extent == FREE_DIMENSION else str(extent) for extent in shape)
            print(f"input  {names.input_name(index)}: {TensorDataType(data_type).name} [{text}]")
            extents = [1 if extent == FREE_DIMENSION else extent for extent in shape]
            zeros.append(np.zeros(extents, data_type.name.lower()))
        for index, array in enumerate(run_once(runtime, model, zeros)):
            print(f"output {names.output_name(index)}: {array.dtype} {list(array.shape)}")


def main() -> None:
    """Run the built graph, or the given one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="an .onnx file, whose ports are shown, and one run with zeros"
    )
    given = parser.parse_args()
    with Runtime() as runtime:
        if given.model is not None:
            show_graph(runtime, given.model)
        else:
            show_edges(runtime)


if __name__ == "__main__":
    main()
