"""OpenAI's older completions of plain texts: passed on to the upstream route of the same name."""

from nat.gateway.dialects.chat import error, from_chat, stream, to_chat

__all__ = ["error", "from_chat", "stream", "to_chat"]
