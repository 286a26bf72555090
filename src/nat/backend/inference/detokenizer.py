"""Incremental detokenization: whole characters only, cut before a stop string."""

from nat.backend.tokenizer import REPLACEMENT, ChatTokenizer

_WINDOW = 16
_CONTEXT = 4
_LONGEST_CHARACTER = 4  # bytes in UTF-8, so at most three tokens wait for a fourth


class Detokenizer:
    """Decodes a completion as it grows; text that was taken never changes afterwards.

    A token's text can depend on the token before it (spaces) and on those after it (a character of several
    tokens), so each push decodes a short window, and text is held back while its last character is incomplete
    or while it may be the beginning of a stop string.
    """

    def __init__(self, tokenizer: ChatTokenizer, stop: tuple[str, ...] = (), *, special: bool = False) -> None:
        """With `special`, the text has the special tokens."""
        self._decode = tokenizer.decode_marked if special else tokenizer.decode
        self._stop = stop
        self._longest_stop = max(map(len, stop), default=0)
        self._window_ids: list[int] = []
        self._read = 0  # characters of the window's text that are in `_text`
        self._text = ""
        self._taken = 0
        self.stopped_by: str | None = None
        """The stop string that has ended the text."""

    @property
    def stopped(self) -> bool:
        return self.stopped_by is not None

    @property
    def text(self) -> str:
        """All whole characters so far, up to a stop string."""
        return self._text

    def push(self, token_id: int) -> bool:
        """Add one token; True if its text completes a stop string."""
        self._window_ids.append(token_id)
        window = self._decode(self._window_ids)
        self._read_up_to(window, _whole(window))
        if len(self._window_ids) > _WINDOW:
            self._shorten(window)
        return self.stopped

    def take(self) -> str:
        """The text that later tokens cannot change and that was not taken yet."""
        return self._take(len(self._text) - (0 if self.stopped else self._possible_stop()))

    def finish(self) -> str:
        """The rest, an incomplete last character as U+FFFD; call once, after the last token."""
        if not self.stopped:
            window = self._decode(self._window_ids)
            self._read_up_to(window, len(window))
        return self._take(len(self._text))

    def _take(self, end: int) -> str:
        part = self._text[self._taken : end]
        self._taken = max(self._taken, end)
        return part

    def _read_up_to(self, window: str, end: int) -> None:
        if end <= self._read:
            return
        searched = max(0, len(self._text) - self._longest_stop + 1)
        self._text += window[self._read : end]
        self._read = end
        found = [(at, stop) for stop in self._stop if (at := self._text.find(stop, searched)) >= 0]
        if found:
            at, self.stopped_by = min(found)
            self._text = self._text[:at]

    def _shorten(self, window: str) -> None:
        head = self._decode(self._window_ids[:-_CONTEXT])
        tail = self._decode(self._window_ids[-_CONTEXT:])
        if head + tail == window and self._read >= len(head):
            del self._window_ids[:-_CONTEXT]
            self._read -= len(head)

    def _possible_stop(self) -> int:
        for length in range(min(self._longest_stop - 1, len(self._text)), 0, -1):
            if any(s.startswith(self._text[-length:]) for s in self._stop):
                return length
        return 0


def _whole(window: str) -> int:
    end = len(window)
    while end > 0 and window[end - 1] == REPLACEMENT and len(window) - end < _LONGEST_CHARACTER - 1:
        end -= 1
    return end
