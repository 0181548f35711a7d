"""What a caller may set on a stage until `build` (runtime §9.1, 15.2, 15.3)."""

from __future__ import annotations

from dataclasses import dataclass, field

from .native.backend import LlamaOptions, OrtOptions, StageOptions


@dataclass(slots=True)
class RecordedOptions:
    """The options of one stage, as the public setters leave them."""

    capacity_hint: int = 0
    caller_owns_state: bool = False
    state_pairs: list[tuple[int, int]] = field(default_factory=list)
    dimensions: dict[str, int] = field(default_factory=dict)
    ort: OrtOptions | None = None
    context_group: str | None = None
    llama: LlamaOptions | None = None
    draft_token_limit: int = 0
    draft_predictor_enabled: bool = False
    draft_predictor_path: str | None = None

    def for_engine(self, debug_name: str) -> StageOptions:
        """Return them in the form the engines take."""
        return StageOptions(
            state_pairs=tuple(self.state_pairs),
            caller_owns_state=self.caller_owns_state,
            capacity_hint=self.capacity_hint,
            dimension_overrides=tuple(self.dimensions.items()),
            draft_token_limit=self.draft_token_limit,
            draft_predictor_enabled=self.draft_predictor_enabled,
            draft_predictor_path=self.draft_predictor_path,
            ort=self.ort,
            llama=self.llama,
            debug_name=debug_name,
        )
