"""Hard strings for everything that turns text into ids and back: `HARD_STRINGS`, the same on every run.

Hand-picked ones first; then runs of one character, pairs of characters from different classes, and seeded mixtures.
"""

from __future__ import annotations

import random
from itertools import product

_PICKED = (
    "",
    " ",
    "a",
    "Hello, world!",
    " leading",
    "trailing ",
    "two  spaces",
    "three   spaces",
    "\t",
    "\n",
    "\r\n",
    "a\tb",
    "line\nline",
    "line\r\nline",
    "\n\n\nthree",
    "end\n\n",
    " \n \n ",
    "\u00a0no-break\u00a0space\u00a0",
    "em\u2003space\u3000ideographic",
    "zero\u200bwidth\ufeffmark",
    "0",
    "7",
    "42",
    "1234567890",
    "3.14159 -2.5e10 1,000,000",
    "2026-11-30T12:34:56Z",
    "0x1F 0b101 1_000",
    "½ ² ³ ¼ Ⅷ ① 四 ٤٢ ४२",
    "x² + y² = ½",
    "a½b²cⅧd",
    " ½",
    " ²",
    " Ⅷ",
    "I'm you're he'll we've they'd it's don't CAN'T I'LL 'tis",
    "’curly’ “quotes”",
    "zażółć gęślą jaźń",
    "Pchnąć w tę łódź jeża lub ośm skrzyń fig",
    "naïve café résumé Ünïcödé",
    "Straße ẞ ﬁ ﬂ Ǆ",
    "İstanbul ıI",
    "Ελληνικά και άλλα",
    "Съешь же ещё этих мягких французских булок",
    "你好，世界！",
    "今日はいい天気ですね。カタカナ ﾊﾝｶｸ",
    "안녕하세요 세계",
    "สวัสดีชาวโลก",
    "नमस्ते दुनिया",
    "مرحبا بالعالم",
    "שלום עולם",
    "abc שלום 123 مرحبا xyz",
    "\u202eright to left override\u202c",
    "e\u0301 vs \u00e9",
    "Z\u0351\u036b\u0343a\u030a\u0323l\u0363\u0489go",
    "\u0301starts with a mark",
    "👍",
    "👩‍👩‍👧‍👦 family",
    "🇵🇱🇫🇷 flags",
    "👋🏽 skin tone",
    "1️⃣ keycap",
    "text🙂text",
    "🙂🙂🙂🙂",
    "𝒳 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 𠜎",
    "\x00",
    "a\x00b",
    "\x01\x02\x03\x07\x08\x0b\x0c\x1b[31m\x7f",
    "\u0080\u0085\u009f",
    "\ufffd replacement",
    "\ufdd0\uffff\U0010ffff",
    "\u2028line\u2029paragraph",
    "soft\u00adhyphen",
    "!?.,;:",
    "...",
    "---***===",
    "<>()[]{}",
    "\"quoted\" 'single' `back`",
    "$100 €50 £20 ¥1000 ₿1",
    "C:\\Users\\name\\file.txt",
    "/usr/local/bin/python3.11",
    "https://example.org/a?b=c&d=%20e#f",
    "user.name+tag@example.co.uk",
    "def f(x: int) -> str:\n    return f'{x!r}'\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] * 2; }",
    "if __name__ == '__main__':\n\tmain()\n",
    "SELECT * FROM t WHERE a <> 'b' -- comment",
    '{"key": [1, 2.5, null, true], "nested": {"a": "b"}}',
    "<html><body class='x'>&amp;&#39;</body></html>",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "    indented four\n        eight",
    "\t\ttabs",
    "CamelCaseIdentifier snake_case_name kebab-case",
    "ALLCAPS lowercase MiXeD",
    "antidisestablishmentarianism",
    "Donaudampfschifffahrtsgesellschaftskapitän",
    "the the the the",
    "<|endoftext|>",
    "<|im_start|>user\nHi<|im_end|>\n",
    "a<|im_end|>b",
    " <|im_end|> ",
    "<|im_start|><|im_start|>",
    "<|im_start",
    "im_end|>",
    "<|unknown_special|>",
    "<s>hello</s>",
    "<unk>",
    "<pad><bos><eos>",
    "<think>reason</think>",
    "<0x41>",
    "▁underline▁",
    "Ġspace Ċnewline",
    "##wordpiece",
    "\\n literal escape \\u00e9",
    "🤷‍♂️ shrug ¯\\_(ツ)_/¯",
)

_RUN_CHARACTERS = ("a", " ", "\n", "\t", ".", "1", "é", "你", "🙂", "\u0301", "-", "\r\n", "½")
_RUN_LENGTHS = (2, 3, 7, 16, 65)

_CLASSES = ("a", "Z", "é", "7", "²", " ", "\n", "\t", ".", "'", "你", "🙂", "\u0301", "ש", "_")

_ALPHABET = (
    "abcdefghijklmnopqrstuvwxyz ABCDEF  0123456789 .,;:!?'\"-_()[]{}<>|/\\@#$%^&*+=~`\n\t"
    "ąćęłńóśźżéèüößñçабвгд你好世界日本語こんにちは한국어שלוםمرحبا🙂👍🏽‍½²Ⅷ\u0301\u00a0"
)


def _mixtures(count: int) -> list[str]:
    rng = random.Random(2026)
    return ["".join(rng.choices(_ALPHABET, k=rng.randint(1, 60))) for _ in range(count)]


HARD_STRINGS: tuple[str, ...] = tuple(
    dict.fromkeys(
        [
            *_PICKED,
            *(character * length for character, length in product(_RUN_CHARACTERS, _RUN_LENGTHS)),
            *(left + right for left, right in product(_CLASSES, _CLASSES)),
            *_mixtures(120),
        ]
    )
)
"""More than 500 different strings without lone surrogates."""


def generated_strings(count: int) -> list[str]:
    """Return `count` seeded strings: words, blanks, special spellings and single characters in any mixture."""
    rng = random.Random(1130)
    parts = (*_PICKED, *_ALPHABET)
    mixed = ["".join(rng.choices(parts, k=rng.randint(2, 6))) for _ in range(count // 2)]
    return mixed + ["".join(rng.choices(_ALPHABET, k=rng.randint(1, 90))) for _ in range(count - count // 2)]
