"""What one operation of a sequence core is made of: who chooses its tokens, and what runs the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cancellation import CancellationLatch
from .evaluation import Evaluation
from .options import TextGenerationOptions
from .row_edits import check_bias
from .sampled_token import SampledTokenSelector
from .sampling import TokenSelector
from .segmented_prompt import SegmentedEvaluation
from .speculative_evaluation import SpeculativeEvaluation
from .speculative_statistics import NOTHING_DRAFTED

if TYPE_CHECKING:
    from .sequence import SequenceCore


def make_selector(core: SequenceCore, options: TextGenerationOptions) -> TokenSelector | SampledTokenSelector:
    """Return what chooses the tokens behind `core.retained`, or takes those that the pipeline has chosen."""
    if core.composition.chooses:
        return SampledTokenSelector(core.tokenizer.token_count)
    if options.logit_bias and not core.feed.vocabulary_size:  # the first row would tell too late
        check_bias(options.logit_bias, core.tokenizer.token_count)
    return TokenSelector(
        options,
        core.feed.vocabulary_size,
        core.retained,
        eos_token_ids=core.eos_token_ids,
        token_bytes=core.tokenizer.token_bytes,
    )


def make_evaluation(core: SequenceCore, options: TextGenerationOptions, latch: CancellationLatch) -> Evaluation:
    """Return what runs the model; a prompt with embedding rows is never drafted for."""
    speculation = core.speculation
    if core.segmented is not None:
        return SegmentedEvaluation(core, latch, NOTHING_DRAFTED if speculation is not None else None)
    if speculation is not None:
        return SpeculativeEvaluation(core, latch, speculation, options)
    return Evaluation(core, latch)
