"""Threads that an engine keeps for each thread that calls it, and letting go of them.

llama.cpp computes with OpenMP, and GNU's keeps a team of threads for every thread that has ever called it, for as long
as that one lives. As soon as there are more of them in the process than CPUs, OpenMP waits by sleeping instead of
spinning, and every run takes two or three times as long, even if only one of the callers is at work.

Not here: finding the function that does it (`llama/library.py`).
"""

from __future__ import annotations

from collections.abc import Callable

_releases: list[Callable[[], object]] = []


def keeps_teams(release: Callable[[], object]) -> None:
    """Name what makes a loaded engine let go of the team of the calling thread; quick where there is none."""
    _releases.append(release)


def release_team() -> None:
    """Let go of the teams that the engines keep for the calling thread; the next run makes them again."""
    for release in _releases:
        release()
