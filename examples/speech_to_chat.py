"""Ask a language model by voice: speech becomes text on ONNX Runtime, the answer comes from a GGUF or an ONNX model.

    python examples/speech_to_chat.py RECORDING [CHAT_MODEL] [SPEECH_MODEL]

RECORDING is a sound file: WAV, FLAC, OGG, MP3. The models are names of the catalog or paths; the defaults are
`smollm2` and `whisper-tiny.en`, which are downloaded once.
"""

from __future__ import annotations

import sys

import genai


def main() -> None:
    """Hear one question, and answer it."""
    if not 2 <= len(sys.argv) <= 4:
        sys.exit("usage: python examples/speech_to_chat.py RECORDING [CHAT_MODEL] [SPEECH_MODEL]")
    chat_model = sys.argv[2] if len(sys.argv) > 2 else "smollm2"
    speech_model = sys.argv[3] if len(sys.argv) > 3 else "whisper-tiny.en"
    with genai.load_speech(speech_model) as model:
        question = model.transcribe(sys.argv[1]).text
    if not question:
        sys.exit(f"{sys.argv[1]}: nobody says anything")
    print(f"> {question}")
    with genai.load(chat_model) as model:
        chat = model.chat(system="Answer in one short sentence.")
        for piece in chat.stream(question, max_new_tokens=200):
            print(piece, end="", flush=True)
    print()


if __name__ == "__main__":
    main()
