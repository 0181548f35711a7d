"""What `winml-lite show` says of an ONNX graph, laid out for people."""

from __future__ import annotations

from cli.graph_report import graph_lines


def test_producer_and_metadata_are_lines_of_their_own() -> None:
    record = {"producer": "pytorch", "model_metadata": {"author": "me", "note": "two\nlines"}}
    assert graph_lines(record) == [
        "producer       pytorch",
        "metadata       author = me",
        "metadata       note = two\\nlines",
    ]


def test_of_long_metadata_the_beginning_is_shown() -> None:
    (line,) = graph_lines({"model_metadata": {"names": "x" * 200}})
    assert line == f"metadata       names = {'x' * 92}..."


def test_what_a_graph_does_not_say_is_left_out() -> None:
    assert graph_lines({"producer": "", "model_metadata": {}}) == []
