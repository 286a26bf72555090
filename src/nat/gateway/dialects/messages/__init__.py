"""Anthropic's Messages API as a chat.

Several text blocks of a message become one text, an empty line between them; an assistant's are joined as they are,
since they are pieces of what was sampled. A tool's result becomes a message of its own before the rest of the user's,
with its images after it, because a chat's tool message holds text. A thinking block is there if the server takes the
thinking out of the text; its signature names the chat's field, and with that it comes back in the same field. Thinking
that was signed elsewhere is another model's and is left out.

Left out as well is what only the vendor's own service has: caching, effort and thinking budgets, tools that it runs
itself. What an agent would miss without a word is refused: answers begun for the model, files, tools whose schema only
the vendor's models know.
"""

from nat.gateway.dialects.messages.answer import MessageStream, error, from_chat
from nat.gateway.dialects.messages.request import to_chat

__all__ = ["error", "from_chat", "stream", "to_chat"]

stream = MessageStream
