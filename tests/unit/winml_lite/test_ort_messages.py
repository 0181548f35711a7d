"""What a failure says begins with what went wrong, not with where in the engine's source."""

from __future__ import annotations

import pytest

from winml_lite.native.ort.messages import without_places


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("/src/core/graph/model.cc:256 ns::Model::Model(onnx::ModelProto&&, const Path&) Too new: 99", "Too new: 99"),
        (
            "/src/a.h:46 void ns::f(const std::map<std::string, int>&, bool) Opset 99 is (very) new",
            "Opset 99 is (very) new",
        ),
        ("/src/a.cc:9 int ns::A<T>::g() const [with T = int [3]] x[0] was false.", "x[0] was false."),
        ("/src/a.cc:9 ns::f(int)::<lambda(auto*)> (1) and (2) differ", "(1) and (2) differ"),
        ("/src/a.cc:9 ns::A::operator()(int) Bad", "Bad"),
        ("/src/a.cc:9 std::function<void(int)> ns::f() Bad", "Bad"),
        ("D:\\a\\core\\graph\\model.cc:146 ns::Model::Model Too new: 99", "Too new: 99"),
        ("Exception: /src/a.cc:9 void f() Status: /src/b.cc:8 void g() Bad", "Exception: Status: Bad"),
    ],
)
def test_places_go(text: str, short: str) -> None:
    assert without_places(text) == short


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Load model from /models/a.onnx failed: no such file",
        "/models/x.cc:3 is missing",
        "/src/a.cc:9 void f()",
        "/src/a.cc:9 void f(",
        "the file /src/a.cc:9 void f() is no place at a beginning",
    ],
)
def test_what_is_no_place_stays(text: str) -> None:
    assert without_places(text) == text
