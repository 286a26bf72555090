"""OpenAI's Responses API as a chat.

An answer is a row of items here and one message there: thinking, text and calls that follow each other are put
together to the message that was sampled. What `previous_response_id` and `item_reference` lead to is kept in the
rollout's memory, unless the request says `store: false`. Thinking is an item if the server takes it out of the text; it
comes back from the item's text, or from `encrypted_content` where the agent asked for that. System and developer texts
that follow each other become one system message, an empty line between them, since most chat templates know only one.
A custom tool is told to the model as a function with one text, `input`; a tool in a namespace has the namespace before
its name.

Left out is what only the vendor's own service or models have: effort, verbosity, caching, tools that it runs itself.
What an agent would miss without a word is refused: background answers, stored prompts and conversations, files, log
probabilities, tools whose schema only the vendor's models know.
"""

from nat.gateway.dialects.chat import error
from nat.gateway.dialects.responses.answer import ResponseStream, from_chat
from nat.gateway.dialects.responses.request import to_chat

__all__ = ["error", "from_chat", "stream", "to_chat"]

stream = ResponseStream
