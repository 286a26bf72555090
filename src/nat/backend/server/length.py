"""Which requests are too long for the model's context, found out before anything of them is tokenised. Pure."""

from dataclasses import dataclass

from nat.backend.model import LoadedModel
from nat.backend.server.errors import TOO_LONG, ApiError

_ENVELOPE_BYTES = 2**20
"""A body beside its texts: keys, ids, tools, what is ignored."""


@dataclass(frozen=True)
class LengthLimits:
    """Bounds that no prompt exceeds that fits the model."""

    tokens: int
    """The model's context."""
    characters: int
    """Those of a text in which each token is the longest that there is."""

    @classmethod
    def of(cls, loaded: LoadedModel) -> "LengthLimits":
        return cls(loaded.max_seq_length, loaded.max_seq_length * loaded.tokenizer.longest_token)

    @property
    def body_bytes(self) -> int:
        """How large a request's body may be."""
        return _ENVELOPE_BYTES + self.characters

    def check_text(self, text: str, *, param: str) -> None:
        """Refuse a text of more characters than the context can hold.

        Raises:
            ApiError: 400 with OpenAI's code.

        """
        if len(text) > self.characters:
            raise self._error(f"the prompt has {len(text)} characters, {self.characters} at most", param)

    def check_messages(self, count: int) -> None:
        """Refuse a conversation of more messages than the context has tokens."""
        if count > self.tokens:
            raise self._error(f"there are {count} messages, and each takes at least one token", "messages")

    def _error(self, seen: str, param: str) -> ApiError:
        message = f"this model's context has {self.tokens} tokens; {seen}. Shorten the prompt"
        return ApiError(message, param=param, code=TOO_LONG)
