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
REACH = 2  # characters before and behind a place decide whether it is a cut
_NEAR = (1 << 8, 1 << 12)  # characters at the end of a text: the first often have a cut, the second nearly always


def last_cut(text: str) -> int:
    """The last place where a text can be cut. 0 if there is none."""
    for start in (*(max(0, len(text) - near) for near in _NEAR), 0):
        places = [found.start() for found in CUT.finditer(text, start)]
        if places:
            return places[-1]
    return 0
