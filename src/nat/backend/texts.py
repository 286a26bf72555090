"""Turn conversations into rows: the tokens that the model would have seen and sampled, had it written the answers.

An answer's prompt is rendered as for a request. Its own tokens are those of what the template adds for it, up to the
end of the turn; later tokens of the template, such as a line break, belong to the next prompt. Where the turn ends with
the next speaker's mark, that is learned, since the model has to write it.
"""

from collections.abc import Set
from typing import Any

from nat.backend.tokenizer import ChatNotRendered, ChatTokenizer, template_message, template_tool
from nat.wire.rows import CallTokens, merge
from nat.wire.training import Conversation, TokenizedConversation

_SHOWN = 40
"""Characters of rendered text in a message."""


def tokenized(
    conversation: Conversation, tokenizer: ChatTokenizer, *, stops: Set[int], longest: int
) -> TokenizedConversation:
    """The conversation's rows; `stops` are the tokens that end an answer, and no row may be longer than `longest`."""
    try:
        messages = [template_message(message) for message in conversation.messages]
        tools = None if conversation.tools is None else [template_tool(tool) for tool in conversation.tools]
        calls = [_call(messages[: at + 1], tools, tokenizer, stops) for at in conversation.answers]
    except ChatNotRendered as error:
        return TokenizedConversation(problem=str(error))
    rows = []
    for row in merge(calls):
        spans = [span.model_copy(update={"logprobs": None}) for span in row.spans]  # nobody measured any
        rows.append(row.model_copy(update={"spans": spans}))
    if size := max((len(row.token_ids) for row in rows if len(row.token_ids) > longest), default=0):
        return TokenizedConversation(problem=f"it has {size} tokens; the context has {longest}")
    return TokenizedConversation(rows=rows)


def _call(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, tokenizer: ChatTokenizer, stops: Set[int]
) -> CallTokens:
    prompt = tokenizer.render_text(messages[:-1], tools=tools)
    whole = tokenizer.render_text(messages, tools=tools, for_answer=False)
    if not whole.startswith(prompt):
        at = next(i for i, (a, b) in enumerate(zip(prompt, f"{whole}\0", strict=False)) if a != b)
        raise ChatNotRendered(
            f"the chat template writes message {len(messages) - 1} differently once it is answered: the prompt has "
            f"{prompt[at : at + _SHOWN]!r} where the conversation has {whole[at : at + _SHOWN]!r}"
        )
    answer = tokenizer.encode_rendered(whole[len(prompt) :])
    if stops.isdisjoint(answer) and (end := tokenizer.turn_end(stops, calls=bool(messages[-1].get("tool_calls")))):
        answer = tokenizer.encode_rendered(whole[len(prompt) :] + end.borrowed)
    ends = [place for place, token in enumerate(answer) if token in stops]
    if not ends:
        raise ChatNotRendered(
            f"the chat template ends message {len(messages) - 1} with no token at which sampling stops, so the model "
            "would learn answers without an end; have it write {{ eos_token }} after an answer"
        )
    sampled = answer[: ends[0] + 1]
    return CallTokens(
        model="", prompt=tokenizer.encode_rendered(prompt), sampled=sampled, logprobs=[0.0] * len(sampled)
    )
