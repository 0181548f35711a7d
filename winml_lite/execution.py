"""Work in the background: `PipelineExecution` and `PipelineIterationExecution` (runtime §13).

Submitted work runs on a thread of its own; the engines release the interpreter lock, so Python goes on meanwhile. Not
here: what an iteration does (`pipeline.py`), and waiting for the end (`fence.py`).
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from typing import TYPE_CHECKING

from .checks import index_value
from .errors import CANCELLED, E_FAIL, E_INVALIDARG, NOT_SUPPORTED, NotSupportedError, WinMLError
from .fence import Fence, FenceCore, exiting_thread
from .handles import Closeable
from .interrupts import start_thread
from .native.activity import refuse_at_exit
from .values import PipelineExecutionCapabilities

if TYPE_CHECKING:
    from .pipeline import PipelineCore

_SUBMIT = "IWinMLPipelineExecution.Submit"
_SUBMIT_ITERATIONS = "IWinMLPipelineIterationExecution.SubmitIterations"
_LOOK_SECONDS = 0.05
"""How often waiting work looks whether it was cancelled."""
_EXIT_SECONDS = 10.0


class PipelineExecution(Closeable["PipelineCore"]):
    """Runs iterations of a pipeline in the background."""

    __slots__ = ()

    @property
    def capabilities(self) -> PipelineExecutionCapabilities:
        """What `build` found: HOST_ASYNC, that is `submit` uses a thread of the host."""
        self._core  # noqa: B018  (raises on a closed object)
        return PipelineExecutionCapabilities.HOST_ASYNC

    def submit(self, wait_fence: Fence | None = None) -> Fence:
        """Begin one iteration, after the work of `wait_fence` (of any Runtime) if it is given, and return at once.

        The pipeline is busy until the fence completes. If the iteration fails, `Fence.wait` raises its error. If the
        work of `wait_fence` failed, the iteration does not run and fails with the same code.
        """
        return _submit(self._core, 0, wait_fence)


class PipelineIterationExecution(Closeable["PipelineCore"]):
    """Runs a number of iterations of a pipeline with feedback in the background."""

    __slots__ = ()

    def submit_iterations(self, count: int, wait_fence: Fence | None = None) -> Fence:
        """Begin `count` iterations (1..2**32-1); the fence is that of the last one. Else as `PipelineExecution.submit`.

        The first iteration that fails is the last: those before it stay done, it moves nothing itself. A pipeline
        without `connect_next_iteration` is NotSupportedError 0x80070032, `count` 0 is 0x80070057.
        """
        pipeline = self._core
        number = index_value(count, "count")
        if not number:
            raise WinMLError(E_INVALIDARG, _SUBMIT_ITERATIONS, "count must be at least 1")
        return _submit(pipeline, number, wait_fence)


class Submission:
    """Work that a thread does; as the claim on the gate it keeps the pipeline busy."""

    __slots__ = ("__weakref__", "_count", "_owner", "_pipeline", "_wait_fence", "fence")

    def __init__(self, pipeline: PipelineCore, count: int, wait_fence: FenceCore | None) -> None:
        """`count` iterations with feedback, or 0 for one iteration of any pipeline."""
        self._pipeline: PipelineCore | None = pipeline
        self._count = count
        self._wait_fence = wait_fence
        self._owner: dict[str, str] = {}
        """Who answers for the end of this: the thread, or the caller if the thread did not come to it. First entry."""
        self.fence = FenceCore()

    def start(self, pipeline: PipelineCore, context: str) -> None:
        """Claim the pipeline and start the thread. After a failure or Ctrl-C in here the work ends by itself."""
        try:
            pipeline.gate.enter(self, context)
            if self._count and not pipeline.graph.has_feedback:
                raise NotSupportedError(
                    NOT_SUPPORTED, context, "no output is fed back: use connect_next_iteration, or submit() for one run"
                )
            pipeline.gate.has_outputs = False
            pipeline.submission_count += 1
            self.fence.value = pipeline.submission_count
            _pending.add(self)
            start_thread(self._work)
        except BaseException:
            if self._owner.setdefault("is", "caller") == "caller":
                self.end(None)
            else:
                self.cancel()
            raise

    def cancel(self) -> None:
        """Stop the work soon: its fence then fails with 0x800704C7."""
        pipeline = self._pipeline
        if pipeline is not None:
            pipeline.cancel(self)

    def end(self, failure: BaseException | None) -> None:
        """Give the pipeline back and complete the fence."""
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.gate.leave(self)
        del pipeline  # whoever is woken may look whether it is gone
        _pending.discard(self)
        self.fence.complete(failure)

    def _work(self) -> None:
        pipeline = self._pipeline
        if pipeline is None or self._owner.setdefault("is", "thread") != "thread":
            return
        failure: BaseException | None = None
        try:
            if self._wait_fence is not None:
                self._wait_for(self._wait_fence, pipeline)
            pipeline.gate.check_cancelled()
            if self._count:
                pipeline.iterate(self._count)
            else:
                pipeline.execute()
        except BaseException as error:  # whatever it is, who waits for the fence gets it
            failure = error
        del pipeline
        self.end(failure)

    def _wait_for(self, fence: FenceCore, pipeline: PipelineCore) -> None:
        while not fence.wait(_LOOK_SECONDS):
            pipeline.gate.check_cancelled()
        failure = fence.failure
        if failure is not None:
            code = failure.hresult if isinstance(failure, WinMLError) else E_FAIL
            raise WinMLError(code, _SUBMIT, f"not run, the work to wait for has failed: {failure}") from failure


def _submit(pipeline: PipelineCore, count: int, wait_fence: Fence | None) -> Fence:
    if wait_fence is not None and not isinstance(wait_fence, Fence):
        raise TypeError(f"wait_fence must be a Fence, not {type(wait_fence).__name__}")
    refuse_at_exit()
    submission = Submission(pipeline, count, None if wait_fence is None else wait_fence._core)
    fence = Fence(submission.fence)
    submission.start(pipeline, _SUBMIT_ITERATIONS if count else _SUBMIT)
    return fence


_pending: set[Submission] = set()


def _stop_at_exit() -> None:
    """Cancel what is pending and wait for it, so that no thread is inside an engine when the interpreter goes."""
    exiting_thread[0] = threading.get_ident()
    latest = time.monotonic() + _EXIT_SECONDS
    while _pending and time.monotonic() < latest:
        for submission in tuple(_pending):
            submission.cancel()
            submission.fence.wait(_LOOK_SECONDS)


def _forget_after_fork() -> None:
    """Complete the fences in a child process, which has no thread that would."""
    for submission in tuple(_pending):
        submission.end(WinMLError(CANCELLED, _SUBMIT, "the work goes on in the parent process, not in this one"))


# It runs before the exit handler of `native.activity`, which bars the engines: that one is registered already.
atexit.register(_stop_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
