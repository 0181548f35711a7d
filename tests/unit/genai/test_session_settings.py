"""What becomes of `session_options` in genai_config.json, without an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes.rig import failing
from genai.model_source import BuildOptions, build_options
from genai.placement import placement
from genai.session_settings import SessionSettings, building, session_settings
from winml_lite import ExecutionTargetKind, WinMLError

CPU, GPU, NPU = ExecutionTargetKind.CPU, ExecutionTargetKind.GPU, ExecutionTargetKind.NPU
CONFIG = Path("genai_config.json")
NOTHING = build_options(None, None, placement(None, None, None), ())


def settled(*sections: Any, options: BuildOptions = NOTHING) -> SessionSettings:
    return session_settings(options, CONFIG, *sections)


def asking(*providers: dict[str, Any]) -> dict[str, Any]:
    return {"provider_options": list(providers)}


def test_without_a_configuration_nothing_is_set() -> None:
    assert settled(None) == SessionSettings(NOTHING.placement)


def test_what_converters_write_sets_nothing() -> None:
    assert settled({"log_id": "onnxruntime-genai", "provider_options": []}) == SessionSettings(NOTHING.placement)


def test_threads() -> None:
    assert settled({"intra_op_num_threads": 3}).threads == 3
    assert settled({"intra_op_num_threads": 0}).threads is None


def test_threads_of_the_caller_win() -> None:
    mine = build_options(None, 2, placement(None, None, None), ())
    assert settled({"intra_op_num_threads": 3}, options=mine).threads == 2


def test_entries_of_the_session() -> None:
    section = {
        "session.use_env_allocators": "1",
        "config_entries": {"optimization.enable_gelu_approximation": "1"},
        "graph_optimization_level": "ORT_ENABLE_BASIC",
        "disable_quant_qdq": True,
    }
    assert settled(section).entries == (
        ("session.use_env_allocators", "1"),
        ("session.graph_optimization_level", "ORT_ENABLE_BASIC"),
        ("session.disable_quant_qdq", "1"),
        ("optimization.enable_gelu_approximation", "1"),
    )


def test_a_graph_of_a_pipeline_has_the_last_word() -> None:
    decoder = {"intra_op_num_threads": 3, "a.b": "1", **asking({"qnn": {}})}
    settings = settled(decoder, {"intra_op_num_threads": 1, "provider_options": []})
    assert (settings.threads, settings.entries, settings.placement.provider) == (
        1,
        (("a.b", "1"),),
        "QNNExecutionProvider",
    )


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("cuda", "CUDAExecutionProvider"),
        ("WebGPU", "WebGpuExecutionProvider"),
        ("QNNExecutionProvider", "QNNExecutionProvider"),
        ("cpu", "CPUExecutionProvider"),
        ("ggml", "ggml"),
    ],
)
def test_a_provider_is_pinned_by_its_short_name(name: str, provider: str) -> None:
    assert settled(asking({name: {}})).placement.provider == provider


def test_options_of_a_provider() -> None:
    settings = settled(asking({"cuda": {"enable_cuda_graph": "0", "tunable": True}}, {"cpu": {}}))
    assert settings.placement.provider_options == (("enable_cuda_graph", "0"), ("tunable", "1"))


def test_a_provider_on_one_class_of_hardware() -> None:
    chosen = {"device_filtering_options": {"hardware_device_type": "npu"}}
    assert settled(asking({"openvino": chosen})).placement.target is NPU


def test_a_provider_option_may_name_a_file_of_the_provider() -> None:
    settings = settled(asking({"qnn": {"backend_path": "QnnHtp.dll"}}))
    assert settings.placement.provider_options == (("backend_path", "QnnHtp.dll"),)


def test_a_colon_in_a_provider_option_that_names_no_file() -> None:
    shapes = {"trt_profile_min_shapes": "ids:1x1"}
    assert settled(asking({"tensorrt": shapes})).placement.provider_options == (("trt_profile_min_shapes", "ids:1x1"),)


def test_a_provider_of_the_caller_wins() -> None:
    mine = build_options(None, None, placement(None, "MyProvider", {"k": "v"}), ())
    assert settled(asking({"cuda": {"device_id": "1"}}), options=mine).placement == mine.placement


def test_the_cpu_of_the_caller_wins() -> None:
    mine = build_options(None, None, placement(CPU, None, None), ())
    assert settled(asking({"cuda": {}}), options=mine).placement == mine.placement


def test_a_class_of_hardware_of_the_caller_goes_with_the_provider() -> None:
    mine = build_options(None, None, placement(GPU, None, None), ())
    settings = settled(asking({"openvino": {}}), options=mine)
    assert (settings.placement.target, settings.placement.provider) == (GPU, "OpenVINOExecutionProvider")


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ({"execution_mode": "parallel"}, "execution_mode"),
        ({"custom_ops_library": "ops.so"}, "custom_operators=PATH"),
        ({"ep.context_enable": "1"}, "compile_to_file"),
        ({"session.model_external_initializers_file_folder_path": "/etc"}, "beside the model"),
        ({"session.optimized_model_filepath": "elsewhere.onnx"}, "no file"),
        ({"config_entries": {"session.moe.offload.derived_cache_dir": "/tmp"}}, "derived_cache_dir"),
        ({"session.optimized_model_external_initializers_file_name": "x"}, "no file"),
        ({"session.node_partition_config_file": ""}, "no file"),
        ({"session.debug_layout_transformation": "1"}, "writes files"),
        ({"ep.qnnexecutionprovider.op_packages": "Add:evil.so:f"}, "code"),
        ({"ep.coreml.ModelCacheDirectory": "../elsewhere"}, "ModelCacheDirectory: no file"),
        (asking({"cuda": {}}, {"dml": {}}), "cuda and dml at once"),
        (asking({"cpu": {"arena": "1"}}), "'cpu' has no options"),
        (asking({"qnn": {"backend_path": "libraries/libQnnHtp.so"}}), "qnn.backend_path"),
        (asking({"openvino": {"cache_dir": "..\\cache"}}), "openvino.cache_dir"),
        (asking({"openvino": {"cache_dir": ".."}}), "openvino.cache_dir"),
        (asking({"qnn": {"backend_path": "C:QnnHtp.dll"}}), "qnn.backend_path"),
        (asking({"CoreMLExecutionProvider": {"ModelCacheDirectory": "cache/x"}}), "ModelCacheDirectory"),
        (
            asking({"tensorrt": {"trt_extra_plugin_lib_paths": "evil.so"}}),
            "trt_extra_plugin_lib_paths 'evil.so': it names code",
        ),
        (asking({"qnn": {"op_packages": "Add:evil.so:f"}}), "it names code"),
        (asking({"qnn": {"device_filtering_options": {"hardware_device_id": 1}}}), "hardware_device_type"),
        (asking({"qnn": {"device_filtering_options": {"hardware_device_type": "tpu"}}}), "none of cpu, gpu, npu"),
    ],
)
def test_what_cannot_be_honoured_is_refused(section: Any, text: str) -> None:
    with failing(0x80070032) as caught:
        settled(section)
    assert text in str(caught.value)
    assert "genai_config.json" in str(caught.value)


@pytest.mark.parametrize(
    "section",
    [
        [],
        {"config_entries": []},
        {"config_entries": {"a.b": 1}},
        {"config_entries": {"a.b": "x\0y"}},
        {"config_entries": {"a.\0": "x"}},
        {"graph_optimization_level": "\ud800"},
        {"\ud800.b": "x"},
        {"intra_op_num_threads": -1},
        {"intra_op_num_threads": True},
        {"provider_options": {"cuda": {}}},
        {"provider_options": ["cuda"]},
        {"provider_options": [{"cuda": []}]},
        {"provider_options": [{"cuda": {"device_id": 1}}]},
        {"provider_options": [{"cuda": {"device_id": "\0"}}]},
        {"provider_options": [{"cuda": {"device\0": "1"}}]},
        {"provider_options": [{"cuda": {"": "1"}}]},
        {"provider_options": [{"": {}}]},
        {"provider_options": [{"cu\0da": {}}]},
    ],
)
def test_what_is_broken_is_refused(section: Any) -> None:
    with failing(0x8007000D):
        settled(section)


def test_a_library_of_the_caller_stands_for_that_of_the_file() -> None:
    mine = build_options(None, None, placement(None, None, None), (), "mine.so")
    assert settled({"custom_ops_library": "ops.so"}, options=mine).custom_operators == ("mine.so",)


@pytest.mark.parametrize("libraries", ["", [""], [3], 3])
def test_libraries_are_paths(libraries: Any) -> None:
    with pytest.raises(TypeError):
        build_options(None, None, placement(None, None, None), (), libraries)


def test_a_missing_provider_is_told_with_the_file_and_the_mends() -> None:
    settings = settled(asking({"qnn": {}}))
    with failing(0x80070490) as caught, building(settings):
        raise WinMLError(0x80070490, "build", "execution provider 'QNNExecutionProvider' was not found")
    for text in ("genai_config.json", "'qnn'", "was not found", "pip install onnxruntime-qnn", "--device cpu"):
        assert text in str(caught.value)


def test_other_failures_stay_as_they_are() -> None:
    failure = WinMLError(0x80070490, "build", "execution provider 'other' was not found")
    with pytest.raises(WinMLError) as caught, building(settled(asking({"qnn": {}}))):
        raise failure
    assert caught.value is failure
