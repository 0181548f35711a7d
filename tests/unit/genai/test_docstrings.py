"""Docstrings in three styles: the description and the parameters."""

from __future__ import annotations

import inspect

import pytest

from genai.docstrings import read_docstring

GOOGLE = """Look up the weather
    of a city.

    It may be late.

    Args:
        city: The name of the city,
            in English: really.
        days (int, optional): How many days.

        *more: The rest.

    Returns:
        text: The weather.
    """
NUMPY = """Look up the weather of a city.

    Parameters
    ----------
    city : str
        The name of the city,

        in English.
    first, last : int, optional
        The days.
    unit
        C or F

    Returns
    -------
    text : str
        The weather.
    """
SPHINX = """Look up the weather of a city.

    :param city: The name of the city,
        in English
    :param int days: How many days
    :type days: int
    :param: nothing
    :returns: The weather
    """


@pytest.mark.parametrize(
    ("text", "description", "parameters"),
    [
        (
            GOOGLE,
            "Look up the weather of a city.\nIt may be late.",
            {"city": "The name of the city, in English: really.", "days": "How many days.", "more": "The rest."},
        ),
        (
            NUMPY,
            "Look up the weather of a city.",
            {"city": "The name of the city, in English.", "first": "The days.", "last": "The days.", "unit": "C or F"},
        ),
        (
            SPHINX,
            "Look up the weather of a city.",
            {"city": "The name of the city, in English", "days": "How many days"},
        ),
        ("Only this: a line.", "Only this: a line.", {}),
        ("", "", {}),
        ("Args:", "", {}),
        ("Parameters\n----------", "", {}),
        ("Note that this\n-- is text.", "Note that this -- is text.", {}),
    ],
)
def test_what_a_docstring_says(text: str, description: str, parameters: dict[str, str]) -> None:
    assert read_docstring(inspect.cleandoc(text)) == (description, parameters)
