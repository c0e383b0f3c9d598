"""Places where a text can be cut: a BPE gives both halves the ids that it gives the whole.

There our pattern and those of the named encodings all begin a new piece, and no piece before looks further ahead.
"""

from __future__ import annotations

import re

_LETTER = r"[^\W\d_]"
CUT = re.compile(
    "|".join(
        (
            r"(?<=\S)(?= \S)",  # before a single blank
            rf"(?<=\S\n)(?={_LETTER})",  # after a single newline
            # before punctuation between letters, in scripts without blanks
            rf"(?<={_LETTER})(?=[\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f]{_LETTER})",
        )
    )
)
REACH = 8  # bytes, two characters, before and behind a place decide whether it is a cut
_NEAR = (1 << 8, 1 << 12)  # bytes at the end of a text: the first often have a cut, the second nearly always


def last_cut(text: bytes) -> int:
    """Return the last place where a text in UTF-8 can be cut, in bytes; 0 if there is none."""
    for near in (*_NEAR, len(text)):
        end = text[max(0, len(text) - near) :].decode(errors="ignore")  # it may begin inside a character
        places = [found.start() for found in CUT.finditer(end)]
        if places:
            return len(text) - len(end[places[-1] :].encode())
    return 0
