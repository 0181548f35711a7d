"""The part of the border that only an engine with execution providers has (runtime §18.3)."""

from __future__ import annotations

from typing import Protocol

from .backend import Backend


class ProviderBackend(Backend, Protocol):
    """An engine whose execution providers may come from libraries of their own."""

    def provider_problems(self) -> tuple[str, ...]:
        """Say of each provider that is there and offers no device why."""

    def register_provider(self, name: str, path: str) -> tuple[str, ...]:
        """Register a library for the rest of the process; return its providers that found hardware.

        The same library again changes nothing. 0x8007007E for one that does not load or brings no provider, 0x80070057
        for another one under a name in use.
        """
