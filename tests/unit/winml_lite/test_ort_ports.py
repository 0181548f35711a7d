"""What is said of a bound output that does not fit, in the words of two versions of the engine."""

from __future__ import annotations

import pytest

from winml_lite.files.artifact import Port
from winml_lite.native.ort.ports import misfit_reason
from winml_lite.storage import Storage, allocate
from winml_lite.values import TensorDataType

FLOAT = TensorDataType.FLOAT32
OUTPUTS = (Port("y", FLOAT, ("rows", 3)), Port("it's z", FLOAT, ("rows", 3)))
NEW = (
    "Non-zero status code returned while running Add node. Name:'' Status Message: The output OrtValue provided for "
    "output 'it's z' of node '' (Add) has shape {2,3} but the computed output shape for this run is {4,3}. When calling"
)
OLD = (
    "Non-zero status code returned while running Add node. Name:'' Status Message: shape && tensor.Shape() == *shape "
    "was false. OrtValue shape verification failed. Current shape:{2,3} Requested shape:{4,3}"
)
SAID = (
    "was produced with shape (4, 3), the bound tensor has (2, 3); "
    "bind a tensor of that shape, or request the output and get a new one"
)


def tensor(rows: int) -> Storage:
    return allocate(FLOAT, (rows, 3))


def test_the_engine_names_the_output() -> None:
    assert misfit_reason(NEW, OUTPUTS, (tensor(2), tensor(2))) == f'output "it\'s z" {SAID}'


@pytest.mark.parametrize(("bound", "name"), [((tensor(2), tensor(4)), "'y'"), ((None, tensor(2)), '"it\'s z"')])
def test_an_older_engine_means_the_only_output_of_that_shape(bound: tuple[Storage | None, ...], name: str) -> None:
    assert misfit_reason(OLD, OUTPUTS, bound) == f"output {name} {SAID}"


@pytest.mark.parametrize(
    ("message", "bound"),
    [
        (OLD, (tensor(2), tensor(2))),  # either of them
        (OLD, (None, tensor(5))),  # memory inside the engine
        (NEW, (tensor(2), None)),  # a state that is kept in place
        ("Non-zero status code returned while running Add node. Name:'' Status Message: no", (tensor(2), tensor(2))),
    ],
)
def test_other_failures_keep_their_text(message: str, bound: tuple[Storage | None, ...]) -> None:
    assert misfit_reason(message, OUTPUTS, bound) is None


def test_a_scalar_has_no_extents() -> None:
    message = "OrtValue shape verification failed. Current shape:{} Requested shape:{1}"
    text = misfit_reason(message, (Port("s", FLOAT, ()),), (allocate(FLOAT, ()),))
    assert text is not None
    assert text.startswith("output 's' was produced with shape (1,), the bound tensor has ();")
