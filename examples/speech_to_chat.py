"""Ask a language model by voice: speech becomes text on ONNX Runtime, the answer comes from a GGUF or an ONNX model.

    python examples/speech_to_chat.py RECORDING [CHAT_MODEL] [SPEECH_MODEL]

RECORDING is a sound file: WAV, FLAC, OGG, MP3. The models are names of the catalog or paths; the defaults are
`smollm2` and `whisper-tiny.en`, which are downloaded once.
"""

from __future__ import annotations

import argparse
import sys

import genai


def main() -> None:
    """Hear one question, and answer it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recording", metavar="RECORDING", help="a sound file: WAV, FLAC, OGG, MP3")
    parser.add_argument("chat_model", nargs="?", default="smollm2", metavar="CHAT_MODEL", help="default: %(default)s")
    parser.add_argument(
        "speech_model", nargs="?", default="whisper-tiny.en", metavar="SPEECH_MODEL", help="default: %(default)s"
    )
    given = parser.parse_args()
    with genai.load_speech(given.speech_model) as model:
        question = model.transcribe(given.recording).text
    if not question:
        sys.exit(f"{given.recording}: nobody says anything")
    print(f"> {question}")
    with genai.load(given.chat_model) as model:
        chat = model.chat(system="Answer in one short sentence.")
        for piece in chat.stream(question, max_new_tokens=200):
            print(piece, end="", flush=True)
    print()


if __name__ == "__main__":
    main()
