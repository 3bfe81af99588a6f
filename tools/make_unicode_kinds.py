"""Write native/vocab/unicode_kinds.inc: which code points form words, and which of those stand alone.

Run it by hand when the Unicode version is to change; a vocabulary file does not depend on Python's own tables.
"""

import sys
import unicodedata
from pathlib import Path

# Scripts written without blanks: every character is an atom of its own, so that phrases are n-grams of characters.
UNSPACED = [
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # CJK radicals
    (0x3005, 0x3007),
    (0x3021, 0x30FF),  # numerals, Hiragana, Katakana
    (0x3100, 0x312F),  # Bopomofo
    (0x31A0, 0x31FF),
    (0x3400, 0x9FFF),  # CJK ideographs
    (0xA000, 0xA4CF),  # Yi
    (0xF900, 0xFAFF),  # CJK compatibility
    (0x1B000, 0x1B16F),  # Kana supplements
    (0x20000, 0x323AF),  # CJK extensions
]


def kind(code_point: int) -> str:
    """One of "word", "lone", "single"."""
    if unicodedata.category(chr(code_point))[0] not in "LMN":
        return "single"
    return "lone" if any(lo <= code_point <= hi for lo, hi in UNSPACED) else "word"


def main() -> None:
    """Write the table next to the code that includes it."""
    rows: list[list[int | str]] = []
    for code_point in range(0x80, sys.maxunicode + 1):
        k = kind(code_point)
        if k == "single":
            continue
        if rows and rows[-1][1] == code_point - 1 and rows[-1][2] == k:
            rows[-1][1] = code_point
        else:
            rows.append([code_point, code_point, k])
    lines = [f"// Unicode {unicodedata.unidata_version}; written by tools/make_unicode_kinds.py"]
    lines += [f"{{0x{lo:x}, 0x{hi:x}, CharKind::{k}}}," for lo, hi, k in rows]
    target = Path(__file__).parents[1] / "native/vocab/unicode_kinds.inc"
    target.write_text("\n".join(lines) + "\n")
    print(f"{target.name}: {len(rows)} ranges")


if __name__ == "__main__":
    main()
