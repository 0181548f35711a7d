"""`python -m winml_lite.cli`: the command `winml-lite`, with the interpreter that is named."""

from __future__ import annotations

from .main import main

main(prog_name="winml-lite")
