"""Text from tokens as they come, cut at the first stop text."""

from __future__ import annotations

from collections.abc import Sequence

from gptlite.tokenizers.base import StreamDecoder, Tokenizer


class TextStream:
    """The text of one sample, token by token: only whole characters, and nothing from the first stop text on.

    Text that may be the beginning of a stop text is held back until it is known not to be.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._decoder, self._stop = StreamDecoder(tokenizer), stop
        self._held = ""
        self._ended = False
        self.stopped = False  # by a stop text

    def feed(self, token: int) -> str:
        """Add a token and return the text that is now certain; "" after a stop text."""
        return "" if self._ended else self._release(self._decoder.feed(token), last=False)

    def finish(self) -> str:
        """End the stream and return the text that was held back."""
        return "" if self._ended else self._release(self._decoder.flush(), last=True)

    def _release(self, text: str, *, last: bool) -> str:
        held = self._held + text
        cut = min((at for s in self._stop if (at := held.find(s)) >= 0), default=len(held))
        # Even before a complete stop text, another one may have begun that is not complete yet.
        certain = len(held) if last else len(held) - _length_of_stop_prefix(held, self._stop)
        ready = min(cut, certain)
        self.stopped = ready == cut < len(held)
        self._ended = last or self.stopped
        self._held = held[ready:]
        return held[:ready]


def _length_of_stop_prefix(text: str, stop: Sequence[str]) -> int:
    """Length of the longest suffix of the text that is a proper prefix of a stop text."""
    longest = max((len(s) for s in stop), default=0)
    for size in range(min(len(text), longest - 1), 0, -1):
        if any(s.startswith(text[-size:]) for s in stop):
            return size
    return 0


def decode_until_stop(tokenizer: Tokenizer, tokens: Sequence[int], stop: Sequence[str]) -> str:
    """Return the text of all tokens, up to the first stop text."""
    stream = TextStream(tokenizer, stop)
    return "".join([*map(stream.feed, tokens), stream.finish()])
