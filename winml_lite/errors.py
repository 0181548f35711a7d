"""Exceptions and HRESULT codes of the object model (runtime §1.1 and 16).

Here: the two exception classes, the codes as plain integers, their descriptions, and the tables that turn a status of
an engine into a code. Not here: argument checks (`checks.py`), which raise `TypeError` and `ValueError`.

    OSError
    └── WinMLError              any failing HRESULT
        └── NotSupportedError   an optional capability is absent
"""

from __future__ import annotations

S_OK = 0x00000000
S_FALSE = 0x00000001
E_NOTIMPL = 0x80004001
E_NOINTERFACE = 0x80004002
E_POINTER = 0x80004003
E_FAIL = 0x80004005
E_BOUNDS = 0x8000000B
E_UNEXPECTED = 0x8000FFFF
WRONG_THREAD = 0x8001010E
FILE_NOT_FOUND = 0x80070002
PATH_NOT_FOUND = 0x80070003
E_ACCESSDENIED = 0x80070005
NOT_ENOUGH_MEMORY = 0x80070008
INVALID_DATA = 0x8007000D
E_OUTOFMEMORY = 0x8007000E
NOT_SUPPORTED = 0x80070032
TOO_MANY_CMDS = 0x80070038
TOO_MANY_NAMES = 0x80070044
E_INVALIDARG = 0x80070057
DISK_FULL = 0x80070070
INSUFFICIENT_BUFFER = 0x8007007A
MODULE_NOT_FOUND = 0x8007007E
BUSY = 0x800700AA
ALREADY_EXISTS = 0x800700B7
FILENAME_TOO_LONG = 0x800700CE
LOCKED = 0x800700D4
WAIT_TIMEOUT = 0x80070102
ARITHMETIC_OVERFLOW = 0x80070216
FILE_INVALID = 0x800703EE
NOT_FOUND = 0x80070490
NO_LEGAL_TOKEN = 0x80070491
CANCELLED = 0x800704C7
INTERNAL_ERROR = 0x8007054F
FILE_CORRUPT = 0x80070570
E_NOT_VALID_STATE = 0x8007139F

DESCRIPTIONS: dict[int, str] = {
    S_OK: "success",
    S_FALSE: "no value",
    E_NOTIMPL: "not implemented",
    E_NOINTERFACE: "this optional capability is absent",
    E_POINTER: "a required object is missing",
    E_FAIL: "unspecified failure",
    E_BOUNDS: "out of bounds",
    E_UNEXPECTED: "a component broke its own rules",
    WRONG_THREAD: "the object belongs to another thread",
    FILE_NOT_FOUND: "file not found",
    PATH_NOT_FOUND: "path not found",
    E_ACCESSDENIED: "access denied",
    NOT_ENOUGH_MEMORY: "not enough memory on the device",
    INVALID_DATA: "the data is invalid",
    E_OUTOFMEMORY: "out of memory",
    NOT_SUPPORTED: "not supported",
    TOO_MANY_CMDS: "too many calls",
    TOO_MANY_NAMES: "too many names",
    E_INVALIDARG: "invalid argument",
    DISK_FULL: "the disk is full",
    INSUFFICIENT_BUFFER: "the buffer or the sequence capacity is too small",
    MODULE_NOT_FOUND: "a library was not found",
    BUSY: "the pipeline is executing",
    ALREADY_EXISTS: "it exists already",
    FILENAME_TOO_LONG: "the file name is too long",
    LOCKED: "the tensor is locked",
    WAIT_TIMEOUT: "the wait timed out",
    ARITHMETIC_OVERFLOW: "arithmetic overflow",
    FILE_INVALID: "the file was changed from outside",
    NOT_FOUND: "not found",
    NO_LEGAL_TOKEN: "the constraint leaves no token",
    CANCELLED: "the operation was cancelled",
    INTERNAL_ERROR: "the execution provider failed",
    FILE_CORRUPT: "the file is corrupt or unreadable",
    E_NOT_VALID_STATE: "the object is not in a state that allows this call",
}

# ONNX Runtime's OrtErrorCode, in the mapping that ONNX Runtime itself publishes for HRESULTs.
ORT_STATUS: dict[int, int] = {
    1: E_FAIL,  # FAIL
    2: E_INVALIDARG,  # INVALID_ARGUMENT
    3: FILE_NOT_FOUND,  # NO_SUCHFILE
    4: FILE_NOT_FOUND,  # NO_MODEL
    5: E_FAIL,  # ENGINE_ERROR
    6: E_FAIL,  # RUNTIME_EXCEPTION
    7: FILE_CORRUPT,  # INVALID_PROTOBUF
    8: INTERNAL_ERROR,  # MODEL_LOADED
    9: E_NOTIMPL,  # NOT_IMPLEMENTED
    10: FILE_CORRUPT,  # INVALID_GRAPH
    11: INTERNAL_ERROR,  # EP_FAIL
    12: CANCELLED,  # MODEL_LOAD_CANCELED
}

# Results of llama_decode; every code below -1 is E_FAIL.
LLAMA_DECODE_STATUS: dict[int, int] = {1: E_BOUNDS, 2: CANCELLED, -1: E_INVALIDARG}


class WinMLError(OSError):
    """A failing HRESULT.

    `hresult` is the code as an unsigned 32-bit integer (a signed one is accepted), `native_message` the text of the
    engine or a hint how to mend the failure, or None. `str()` holds the code as `0x%08X`, its description, the context
    and the message.
    """

    hresult: int
    native_message: str | None
    is_final = False
    """Whether it shall reach the caller as it is: an exception of the caller's own code, on its way back to him.

    `recast` leaves it alone; a plain `raise` keeps its context too.
    """

    def __init__(self, hresult: int, context: str = "", native_message: str | None = None) -> None:
        self.hresult = hresult & 0xFFFFFFFF
        self.native_message = native_message
        self.context = context
        super().__init__(self._text())

    def _text(self) -> str:
        text = f"0x{self.hresult:08X}: {DESCRIPTIONS.get(self.hresult, 'unknown error code')}"
        if self.context:
            text += f" [{self.context}]"
        if self.native_message:
            text += f": {self.native_message}"
        return text

    def _rename(self, context: str) -> None:
        if context != self.context:
            # "Call" around "Call, input 0", or "Call, input 0" around "Call": the name of the call is said once.
            inner = "" if context.startswith(f"{self.context}, ") else self.context.removeprefix(f"{context}, ")
            self.native_message = ": ".join(part for part in (inner, self.native_message) if part) or None
            self.context = context
            self.args = (self._text(),)

    def __reduce__(self) -> tuple[type[WinMLError], tuple[int, str, str | None]]:
        return type(self), (self.hresult, self.context, self.native_message)


class NotSupportedError(WinMLError):
    """An optional capability of an object is absent (0x80004002 or 0x80070032)."""


def recast(error: WinMLError, context: str, kind: type[WinMLError] = WinMLError) -> WinMLError:
    """Turn the failure of an inner call into the failure of the public call `context`, to be raised in its place.

    Code and texts are kept: the inner context moves into the message. The class becomes `kind`.
    """
    if error.is_final:
        return error
    if type(error) is not kind:
        error = kind(error.hresult, error.context, error.native_message)
    error._rename(context)
    return error
