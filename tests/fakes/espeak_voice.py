"""A program: read text from stdin, write it spoken to stdout, first the sample rate (int32), then int16 samples.

Arguments: the library of espeak-ng, the folder of its data, a voice, words per minute. It is a program, since the
library keeps a state that changes the next utterance: only a fresh process says a text the same way each time.
"""

from __future__ import annotations

import ctypes
import sys

_SYNCHRONOUS = 2  # AUDIO_OUTPUT_SYNCHRONOUS: espeak_Synth returns when the callback has got everything
_DO_NOT_EXIT = 0x8000  # espeakINITIALIZE_DONT_EXIT: missing data is a result, not the end of the process
_UTF8 = 1  # espeakCHARS_UTF8
_WORDS_PER_MINUTE = 1  # espeakRATE
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


def main() -> None:
    path, data_folder, voice, words_per_minute = sys.argv[1:]
    library = _declared(ctypes.CDLL(path))
    sample_rate = library.espeak_Initialize(_SYNCHRONOUS, 0, data_folder.encode(), _DO_NOT_EXIT)
    if sample_rate <= 0:
        raise SystemExit(f"espeak-ng cannot read its data in {data_folder}")
    output = sys.stdout.buffer
    output.write(sample_rate.to_bytes(4, sys.byteorder))

    def write(samples: ctypes._Pointer[ctypes.c_short] | None, count: int, _events: int | None) -> int:
        if samples and count:
            output.write(ctypes.string_at(samples, 2 * count))
        return 0

    callback = _CALLBACK(write)
    library.espeak_SetSynthCallback(callback)
    _check(library.espeak_SetVoiceByName(voice.encode()), f"voice {voice}")
    _check(library.espeak_SetParameter(_WORDS_PER_MINUTE, int(words_per_minute), 0), "espeak_SetParameter")
    text = sys.stdin.buffer.read()
    _check(library.espeak_Synth(text, len(text) + 1, 0, 0, 0, _UTF8, None, None), "espeak_Synth")
    _check(library.espeak_Synchronize(), "espeak_Synchronize")


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    number, text, pointer = ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p
    unsigned = ctypes.c_uint
    library.espeak_Initialize.argtypes = [number, number, text, number]
    library.espeak_SetSynthCallback.argtypes = [_CALLBACK]
    library.espeak_SetSynthCallback.restype = None
    library.espeak_SetVoiceByName.argtypes = [text]
    library.espeak_SetParameter.argtypes = [number, number, number]
    library.espeak_Synth.argtypes = [text, ctypes.c_size_t, unsigned, number, unsigned, unsigned, pointer, pointer]
    return library


def _check(status: int, what: str) -> None:
    if status != 0:
        raise SystemExit(f"{what} failed with {status}")


if __name__ == "__main__":
    main()
