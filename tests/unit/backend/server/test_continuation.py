"""Chats continue sampled tokens under six chat templates, with tokens that the tokenizer would split otherwise."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.chat_families import FAMILIES, raw_text, split_otherwise
from nat.backend.server.continuation import Chat, Continuations
from nat.wire.openai_api import BrokenPrefix

TOKENIZERS = {name: family.tokenizer() for name, family in FAMILIES.items()}
FAITHFUL = ["qwen2.5", "llama3", "mistral", "gemma"]
"""Families whose templates keep an earlier answer unchanged except for white space around it."""
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
CALL = '<tool_call>{"arguments":{"b":"the","a":1},"name":"add"}</tool_call>'


def user(text):
    return {"role": "user", "content": text}


def assistant(text, *calls):
    functions = [{"id": f"c{n}", "function": {"name": name, "arguments": a}} for n, (name, a) in enumerate(calls)]
    return {"role": "assistant", "content": text} | ({"tool_calls": functions} if calls else {})


def tool(text):
    return {"role": "tool", "content": text}


class Server:
    """A model with scripted answers in chosen tokens."""

    def __init__(self, family, seed=0, **options):
        self.tokenizer = TOKENIZERS[family]
        self.end = self.tokenizer.eos_token_id
        self.continuations = Continuations(self.tokenizer, **options)
        self.random = Random(seed)

    def ask(self, messages, says=None, *, tools=None, cut=False, sampled=None, session=""):
        """The prompt of the messages; if an answer is given, the tokens of prompt and answer."""
        chat = Chat(messages, tools, words=self.tokenizer.words.format)
        text = self.tokenizer.render_text(chat.messages, tools=chat.tools)
        prompt = self.continuations.prompt(chat, text, session=session)
        if says is None:
            return prompt
        sampled = sampled or split_otherwise(self.tokenizer, says, self.random) + [self.end] * (not cut)
        answer = says + self.tokenizer.hf.eos_token * (not cut)
        self.continuations.remember(prompt, answer, sampled, tools=bool(tools), session=session)
        return prompt, [*prompt.ids, *sampled]

    def reads_as(self, prompt):
        """True if the tokens' text equals the template's text up to white space."""
        return _dense(raw_text(self.tokenizer, prompt.ids)) == _dense(prompt.text)


def _dense(text):
    return "".join(text.split())


def begins_with(ids, head):
    return ids[: len(head)] == head


@pytest.mark.parametrize("says", ["the thin end", " \n the thin end \n\n", ""])
@pytest.mark.parametrize("family", FAITHFUL)
def test_a_chat_continues_the_sampled_tokens(family, says):
    """Every turn continues, even if the template trims answers, joins roles or has no system role."""
    server = Server(family)
    messages = [{"role": "system", "content": "be brief"}, user("the one")]
    held = []
    for turn in range(4):
        prompt, whole = server.ask(messages, says)
        assert prompt.broken is None
        assert begins_with(prompt.ids, held)
        assert server.reads_as(prompt)
        held = whole
        messages += [assistant(says), user(f"and then {turn}")]
    assert says == "" or held != server.tokenizer.encode(raw_text(server.tokenizer, held))


@pytest.mark.parametrize("family", ["qwen2.5", "qwen3"])
@pytest.mark.parametrize("says", [CALL, f"so the:\n{CALL}", f"{CALL}\n\n{CALL}"])
def test_calls_are_compared_by_content(family, says):
    """Calls with the same content continue the sampled tokens, whatever the layout of their JSON."""
    server = Server(family)
    asked = [user("add them")]
    _, whole = server.ask(asked, says, tools=TOOLS)
    calls = [("add", {"a": 1, "b": "the"})] * says.count(CALL)
    answer = assistant("so the:" if "so" in says else None, *calls)
    results = [tool("3") for _ in calls]
    prompt, longer = server.ask([*asked, answer, *results], "the sum is 3", tools=TOOLS)
    assert prompt.broken is None
    assert begins_with(prompt.ids, whole)
    rest = raw_text(server.tokenizer, prompt.ids[len(whole) :])
    assert rest.startswith("\n<|im_start|>user\n<tool_response>\n3\n</tool_response>")
    last = server.ask([*asked, answer, *results, assistant("the sum is 3"), user("thanks")], tools=TOOLS)
    assert begins_with(last.ids, longer)


def test_thinking_is_exact_until_the_next_user_message():
    """A tool loop continues the sampled tokens; a template that then drops the thinking is reported."""
    server = Server("qwen3")
    thinks = "<think>\nthe thin\n</think>\n\n"
    messages = [user("add"), assistant(thinks, ("add", {"a": 1, "b": "the"})), tool("3")]
    _, first = server.ask(messages[:1], thinks + CALL, tools=TOOLS)
    loop, _ = server.ask(messages, f"{thinks}it is 3", tools=TOOLS)
    assert loop.broken is None
    assert begins_with(loop.ids, first)
    messages += [assistant(f"{thinks}it is 3"), user("and then?")]
    later = server.ask(messages, tools=TOOLS)
    assert later.broken is BrokenPrefix.TEMPLATE_REWRITES
    assert later.ids == server.tokenizer.render_chat(messages, tools=TOOLS)
    assert "<think>" not in later.text


def test_an_answer_that_spells_the_end_of_a_turn_is_not_continued():
    """An answer whose text contains the end-of-turn token's text is not continued."""
    server = Server("qwen2.5")
    says = "the <|im_end|> thin"
    server.ask([user("hi")], says)
    messages = [user("hi"), assistant(says), user("so")]
    prompt = server.ask(messages)
    assert (prompt.broken, prompt.ids) == (BrokenPrefix.TEMPLATE_REWRITES, server.tokenizer.render_chat(messages))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: [user("what we said: hi"), *m[2:]],
        lambda m: [{"role": "system", "content": "anew"}, *m],
        lambda m: [*m[:2], user("other"), *m[3:]],
    ],
)
def test_a_changed_context_is_named(change):
    """A summarised history or another system prompt before known answers is reported."""
    server = Server("qwen2.5")
    server.ask([user("hi")], "one")
    server.ask([user("hi"), assistant("one"), user("2")], "two")
    prompt = server.ask(change([user("hi"), assistant("one"), user("2"), assistant("two"), user("3")]))
    assert prompt.broken is BrokenPrefix.CONTEXT_CHANGED
    assert server.reads_as(prompt)


@pytest.mark.parametrize("spy", ["spy", ""])
def test_a_reason_tells_nothing_about_the_prompts_of_others(spy):
    """Whether another session had a prompt, or got an answer, cannot be found out by guessing it."""
    server = Server("qwen2.5")
    server.ask([user("a secret")], "the end", session="a")
    guesses = [[user("a secret"), assistant("no")], [user("no"), assistant("the end")]]
    for guess in guesses:
        assert server.ask([*guess, user("more")], session=spy).broken is BrokenPrefix.NOT_SERVED
    if spy:
        exact = [user("a secret"), assistant("the end"), user("more")]
        assert server.ask(exact, session=spy).broken is BrokenPrefix.NOT_SERVED
    told = [server.ask([*guess, user("more")], session="a").broken for guess in guesses]
    assert told == [BrokenPrefix.ANSWER_EDITED, BrokenPrefix.CONTEXT_CHANGED]


def test_memory_is_bounded_and_forgets_the_oldest_first():
    """The least recently used answers are dropped and reported as never served."""
    server = Server("qwen2.5", max_bytes=3500)
    chats = [[user(f"question {n}")] for n in range(8)]
    wholes = []
    for chat in chats:
        server.ask([*chats[0], assistant("the end"), user("more")])
        wholes.append(server.ask(chat, "the end")[1])
        assert server.continuations.num_bytes <= 3500
    kept = [server.ask([*chat, assistant("the end"), user("more")]).broken for chat in chats]
    assert kept[0] is kept[-1] is None
    assert None not in kept[1:-2]


TEXTS = st.text(st.sampled_from("the in a\nn.é<>"), max_size=12)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), family=st.sampled_from(sorted(FAMILIES)), seed=st.integers(0, 999))
def test_a_prompt_is_continued_exactly_or_has_a_reason(data, family, seed):
    """For random chats and clients, the prompt has the last answer's tokens, or a reason and the text's tokens."""
    server = Server(family, seed)
    tools = TOOLS if family.startswith("qwen") else None
    messages, wholes = [user("hi")], []
    for _ in range(data.draw(st.integers(1, 5))):
        thought = "<think>\nthe thin\n</think>\n\n" if data.draw(st.booleans()) else ""
        text, called = data.draw(TEXTS), tools is not None and data.draw(st.booleans())
        says = thought + text + (CALL if called else "")
        cut = data.draw(st.booleans())
        _, whole = server.ask(messages, says, tools=tools, cut=cut)
        wholes.append(whole)
        answer = assistant(thought + text, *[("add", {"a": 1, "b": "the"})] * called)
        move = data.draw(st.sampled_from(["keep", "keep", "keep", "trim", "edit", "unthink", "compact", "insert"]))
        if move == "trim":
            answer["content"] = answer["content"].strip()
        elif move == "edit":
            answer["content"] += " edited"
        elif move == "unthink":
            answer["content"] = text
        elif move == "compact":
            messages = [user("we said much")]
        messages = [*messages, answer, *([tool("3")] if called else []), user(data.draw(TEXTS))]
        if move == "insert":
            messages = [*messages, assistant("said by the agent"), user("yes")]
        prompt = server.ask(messages, tools=tools)
        if prompt.broken is None:
            assert move not in {"edit", "compact"}
            assert begins_with(prompt.ids, whole)
        else:
            text_ids = server.tokenizer.encode_rendered(prompt.text)
            assert prompt.ids == text_ids or any(begins_with(prompt.ids, earlier) for earlier in wholes)
            untouched = move in {"keep", "trim", "insert"} and not thought
            assert not (untouched and len(wholes) == 1 and family in {"qwen2.5", "qwen3", "gemma"} and not called)
        assert server.reads_as(prompt) or tools or cut
