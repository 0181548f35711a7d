"""Media through the helper functions of libmtmd: logits after an image or sound; shares no code with ours.

A program, `media_peer.py MODEL PROJECTOR MEDIA.npy OUTPUT.npz`: in a process of its own, for the package it uses takes
the log of the libraries for itself. The output holds `logits`, of the last token of `before <media> after`, and
`position`.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt
from llama_cpp import mtmd_cpp

_QUIET = llama_cpp.llama_log_callback(lambda level, text, data: None)
_F32 = 0  # GGML_TYPE_F32
_FLASH_ATTENTION_OFF = 0
_MARKER = b"<__media__>"
_CAPACITY = 1024


def logits_after(
    model_path: str, projector_path: str, media: npt.NDArray[np.uint8] | npt.NDArray[np.float32]
) -> tuple[npt.NDArray[np.float32], int]:
    """Return the logits after `before <media> after`, float32 (vocabulary size,), and the position.

    `media`: uint8 (height, width, 3) or float32 (samples,). The two texts are tokenised by the model.
    """
    llama_cpp.llama_log_set(_QUIET, None)
    mtmd_cpp.mtmd_log_set(_QUIET, None)
    loading = llama_cpp.llama_model_default_params()
    loading.use_extra_bufts = False
    model = llama_cpp.llama_model_load_from_file(model_path.encode(), loading)
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = _CAPACITY
    params.n_threads = params.n_threads_batch = 1
    params.type_k = params.type_v = _F32
    params.flash_attn_type = _FLASH_ATTENTION_OFF
    context = llama_cpp.llama_init_from_model(model, params)
    options = mtmd_cpp.mtmd_context_params_default()
    options.use_gpu = False
    options.n_threads = 1
    projector = mtmd_cpp.mtmd_init_from_file(projector_path.encode(), model, options)
    bitmap = _bitmap(media)
    chunks = mtmd_cpp.mtmd_input_chunks_init()
    prompt = b"before " + _MARKER + b" after"
    text = mtmd_cpp.mtmd_input_text(prompt, len(prompt), False, True)
    bitmaps = (ctypes.c_void_p * 1)(bitmap)
    if mtmd_cpp.mtmd_tokenize(projector, chunks, ctypes.byref(text), bitmaps, 1) != 0:
        raise AssertionError("mtmd_tokenize failed")
    position = ctypes.c_int32(0)
    arguments = (projector, context, chunks, 0, 0, _CAPACITY, True, ctypes.byref(position))
    if mtmd_cpp.mtmd_helper_eval_chunks(*arguments) != 0:
        raise AssertionError("mtmd_helper_eval_chunks failed")
    count = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    values = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, -1), (count,)).copy()
    mtmd_cpp.mtmd_input_chunks_free(chunks)
    mtmd_cpp.mtmd_bitmap_free(bitmap)
    mtmd_cpp.mtmd_free(projector)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return values, position.value


def _bitmap(media: npt.NDArray[np.uint8] | npt.NDArray[np.float32]) -> Any:
    if media.dtype == np.float32:
        return mtmd_cpp.mtmd_bitmap_init_from_audio(len(media), media.ctypes.data_as(ctypes.POINTER(ctypes.c_float)))
    height, width, _ = media.shape
    return mtmd_cpp.mtmd_bitmap_init(width, height, media.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8)))


def main(model: str, projector: str, media: str, output: str) -> None:
    logits, position = logits_after(model, projector, np.load(media))
    np.savez(output, logits=logits, position=position)


if __name__ == "__main__":
    main(*sys.argv[1:])
