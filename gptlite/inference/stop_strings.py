"""Text from tokens as they come, and where it stops."""

from __future__ import annotations

from collections.abc import Sequence

from gptlite.tokenizers.base import StreamDecoder, Tokenizer


class TextStream:
    """The text of one sample as its tokens come: never half a character; it ends before the first stop text.

    What could be the beginning of a stop text is held back until it is known not to be one.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._decoder, self._stop = StreamDecoder(tokenizer), stop
        self._held = ""
        self._ended = False
        self.stopped = False  # by a stop text

    def feed(self, token: int) -> str:
        """The text that is certain with this token, perhaps none; nothing once a stop text has come."""
        return "" if self._ended else self._take(self._decoder.feed(token), last=False)

    def finish(self) -> str:
        """What was held back, when no more tokens come."""
        return "" if self._ended else self._take(self._decoder.flush(), last=True)

    def _take(self, text: str, *, last: bool) -> str:
        held = self._held + text
        cut = min((at for s in self._stop if (at := held.find(s)) >= 0), default=len(held))
        # A stop text that came whole can still turn out to lie behind one that began before it.
        sure = len(held) if last else len(held) - _could_begin(held, self._stop)
        ready = min(cut, sure)
        self.stopped = ready == cut < len(held)
        self._ended = last or self.stopped
        self._held = held[ready:]
        return held[:ready]


def _could_begin(text: str, stop: Sequence[str]) -> int:
    """Length of the longest end of `text` that begins a stop text."""
    longest = max((len(s) for s in stop), default=0)
    for size in range(min(len(text), longest - 1), 0, -1):
        if any(s.startswith(text[-size:]) for s in stop):
            return size
    return 0


def whole_text(tokenizer: Tokenizer, tokens: Sequence[int], stop: Sequence[str]) -> str:
    """The text of all tokens, up to the first stop text."""
    stream = TextStream(tokenizer, stop)
    return "".join([*map(stream.feed, tokens), stream.finish()])
