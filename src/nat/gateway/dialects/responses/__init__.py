"""OpenAI's Responses API as a chat.

An answer is a list of items here and one message in a chat: consecutive thinking, text and calls are joined to the
message that was sampled. Targets of `previous_response_id` and `item_reference` are kept in the rollout's memory,
unless the request has `store: false`. Thinking is an item if the server separates it from the text; it returns in the
item's text, or in `encrypted_content` if the agent requested that. Consecutive system and developer texts become one
system message, joined by an empty line, since most chat templates allow only one. A custom tool becomes a function
with one text argument, `input`; a tool in a namespace gets the namespace as a prefix of its name.

Features of the vendor's own service or models are left out: effort, verbosity, caching, tools that it runs itself.
Features that an agent would miss silently are refused: background answers, stored prompts and conversations, files,
log probabilities, tools whose schema only the vendor's models know.
"""

from nat.gateway.dialects.chat import error
from nat.gateway.dialects.responses.answer import ResponseStream, from_chat
from nat.gateway.dialects.responses.request import to_chat

__all__ = ["error", "from_chat", "stream", "to_chat"]

stream = ResponseStream
