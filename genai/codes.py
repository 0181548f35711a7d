"""The HRESULT codes that text generation reports (genai §0.3)."""

from __future__ import annotations

S_OK = 0x00000000
S_FALSE = 0x00000001
E_NOTIMPL = 0x80004001
E_NOINTERFACE = 0x80004002
"""An optional capability is absent: always a `NotSupportedError`."""
E_POINTER = 0x80004003
E_FAIL = 0x80004005
E_UNEXPECTED = 0x8000FFFF
"""An engine returned nothing where it promised something."""
WRONG_THREAD = 0x8001010E
FILE_NOT_FOUND = 0x80070002
PATH_NOT_FOUND = 0x80070003
INVALID_DATA = 0x8007000D
"""A malformed tokenizer or template, or model output nothing can be chosen from."""
E_OUTOFMEMORY = 0x8007000E
NOT_SUPPORTED = 0x80070032
TOO_MANY_CMDS = 0x80070038
TOO_MANY_NAMES = 0x80070044
E_INVALIDARG = 0x80070057
DISK_FULL = 0x80070070
INSUFFICIENT_BUFFER = 0x8007007A
"""The sequence would grow past its capacity."""
MODULE_NOT_FOUND = 0x8007007E
BUSY = 0x800700AA
ALREADY_EXISTS = 0x800700B7
NOT_FOUND = 0x80070490
NO_LEGAL_TOKEN = 0x80070491
"""A constraint leaves no token to choose."""
CANCELLED = 0x800704C7
FILE_CORRUPT = 0x80070570
E_NOT_VALID_STATE = 0x8007139F
