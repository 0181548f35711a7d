"""The methods of `Runtime` that make tensors of token ids, and ids of tensors (tensors §7)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from .handles import Closeable
from .target import ExecutionTarget, RuntimeCore, tensor_target
from .tensor import Tensor, bindable
from .token_tensors import token_storage
from .values import TokenTensorOptions


class TextEncoder(Protocol):
    """What turns a text into token ids, for example `genai.Tokenizer`."""

    def encode(self, text: str, add_special_tokens: bool = ..., /) -> Iterable[int]:
        """Return the ids of a text, with what the model puts around one unless told not to."""


class TokenFactories(Closeable[RuntimeCore]):
    """What `Runtime` has for token ids."""

    __slots__ = ()

    def tensor_from_tokens(
        self,
        token_ids: Iterable[int],
        *,
        options: TokenTensorOptions | None = None,
        target: ExecutionTarget | None = None,
    ) -> Tensor:
        """Make a (1, L) tensor of token ids, INT64 unless `options` says INT32."""
        core = self._core
        keeper = tensor_target(target, core)
        return Tensor(token_storage(token_ids, options), core, keeper)

    def tensor_from_text(
        self,
        text: str,
        tokenizer: TextEncoder,
        *,
        add_special_tokens: bool = True,
        options: TokenTensorOptions | None = None,
        target: ExecutionTarget | None = None,
    ) -> Tensor:
        """Make a (1, L) tensor of the token ids of a text, which `tokenizer.encode` gives (see `genai.Tokenizer`).

        ValueError for a text that has no tokens; errors of the tokenizer reach the caller.
        """
        self._core  # noqa: B018  (raises on a closed Runtime)
        token_ids = tokenizer.encode(text, add_special_tokens)
        return self.tensor_from_tokens(token_ids, options=options, target=target)

    def token_ids_from_tensor(self, tensor: Tensor, *, target: ExecutionTarget | None = None) -> list[int]:
        """Return the ids in an INT32 or INT64 tensor of shape (L,) or (1, L)."""
        self._core  # noqa: B018  (raises on a closed Runtime)
        bindable(tensor)
        return tensor.token_ids(target)
