"""Token ids to and from tensors (tensors §7)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .checks import INT32_MAX, UINT32_MAX, member_of, number_value
from .errors import E_BOUNDS, E_INVALIDARG, WinMLError
from .storage import Storage, StorageLock
from .values import NUMPY_NAMES, TensorDataType, TensorLockMode, TokenTensorOptions

_ID_TYPES = (TensorDataType.INT64, TensorDataType.INT32)


def token_storage(token_ids: Iterable[int], options: TokenTensorOptions | None) -> Storage:
    """Make a (1, L) tensor of ids."""
    given = (options or TokenTensorOptions()).data_type
    data_type = member_of(given, TensorDataType)
    if data_type is None or data_type not in _ID_TYPES:
        raise ValueError(f"token ids are INT64 or INT32, not {given!r}")
    ids = [number_value(token, "token id") for token in token_ids]
    if not ids:
        raise ValueError("token_ids must not be empty")
    if data_type is TensorDataType.INT32 and max(ids) > INT32_MAX:
        raise WinMLError(E_INVALIDARG, "IWinMLRuntime.TensorFromTokens", f"token id {max(ids)} does not fit INT32")
    row = np.array([ids], NUMPY_NAMES[data_type])
    return Storage(row.reshape(-1).view(np.uint8), data_type, row.shape)


def read_tokens(storage: Storage) -> list[int]:
    """Return the ids of a (L,) or (1, L) tensor (see `Tensor.token_ids`)."""
    context = "IWinMLRuntime.TokenIdsFromTensor"
    shape = storage.shape
    if len(shape) not in (1, 2) or (len(shape) == 2 and shape[0] != 1):
        raise ValueError(f"token ids have shape (L,) or (1, L), not {shape}")
    if storage.data_type not in _ID_TYPES:
        raise WinMLError(E_INVALIDARG, context, f"token ids are INT32 or INT64, not {storage.data_type.name}")
    with StorageLock(storage, TensorLockMode.READ):
        storage.fetch()
        ids: list[int] = storage.array().reshape(-1).tolist()
    wrong = next((token for token in ids if not 0 <= token <= UINT32_MAX), None)
    if wrong is not None:
        raise WinMLError(E_BOUNDS, context, f"{wrong} is not a token id")
    return ids
