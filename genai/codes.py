"""The HRESULT codes that text generation reports (genai §0.3)."""

from __future__ import annotations

E_NOINTERFACE = 0x80004002
"""An optional capability is absent: always a `NotSupportedError`."""
E_FAIL = 0x80004005
WRONG_THREAD = 0x8001010E
FILE_NOT_FOUND = 0x80070002
PATH_NOT_FOUND = 0x80070003
E_ACCESSDENIED = 0x80070005
INVALID_DATA = 0x8007000D
"""A malformed tokenizer or template, or model output nothing can be chosen from."""
E_OUTOFMEMORY = 0x8007000E
NOT_SUPPORTED = 0x80070032
TOO_MANY_CMDS = 0x80070038
E_INVALIDARG = 0x80070057
DISK_FULL = 0x80070070
INSUFFICIENT_BUFFER = 0x8007007A
"""The sequence would grow past its capacity."""
MODULE_NOT_FOUND = 0x8007007E
BUSY = 0x800700AA
NOT_FOUND = 0x80070490
NO_LEGAL_TOKEN = 0x80070491
"""A constraint leaves no token to choose."""
CANCELLED = 0x800704C7
FILE_CORRUPT = 0x80070570
E_NOT_VALID_STATE = 0x8007139F
