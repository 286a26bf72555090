"""Text to token ids and back: chat messages and the template, one token's text and bytes, whole completions.

The template is a program and the tokenizer has patterns that come with the model; `folder_check` has tried both before.
API requests and the conversations of a training batch use the same functions, so both render to the same tokens.
"""

import json
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property, partial
from hashlib import blake2b
from inspect import signature
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

from jinja2 import Template, TemplateError
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import _compile_jinja_template, encode_marked_chat, mark_control_tokens

from nat.backend.words.choice import Words, choose
from nat.backend.words.formats import REASONING, FormatRefused
from nat.backend.words.samples import TOOLS, after_answer
from nat.errors import ModelNotSupported, describe_error
from nat.wire.json import parse_json, without_surrogates
from nat.wire.openai_api import joined_text
from nat.wire.serving import NOTICES

notices = logging.getLogger(NOTICES)

REPLACEMENT = "\ufffd"
"""What a decoder returns for bytes that are not (yet) a whole character."""
_RESERVED = {"conversations", "messages", "strftime_now", "bos_token", "eos_token", "pad_token", "unk_token"}.union(
    signature(PreTrainedTokenizerBase.apply_chat_template).parameters
)
"""Names that are no variables of a template: arguments of its renderer, and what the tokenizer gives."""
_CONTEXT = 4
"""Tokens that decide how the next ones are written, such as the bytes of a character."""


@dataclass(frozen=True)
class ChatOptions:
    """What holds for all chats of a model, besides what its folder says."""

    variables: Mapping[str, Any] = field(default_factory=dict)
    """Of the chat template, where a request sets no others."""
    response_template: Mapping[str, Any] | None = None
    """The format of its answers, if the configuration has one."""
    sanitize_control_tokens: bool = False
    """Special tokens are encoded as text where neither the model nor the template has written them."""
    now: str = field(default_factory=lambda: datetime.now().isoformat(timespec="seconds"))  # noqa: DTZ005 - local
    """The local time that templates write; it stands still, else prompts would have other tokens after midnight."""


class ChatNotRendered(ValueError):
    """The chat template refused these messages; the text is the template's, `param` is the field at fault."""

    def __init__(self, message: str, *, param: str = "messages") -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True)
class TokenText:
    """The text of one token; `data` is None if the vocabulary does not determine its bytes."""

    text: str
    data: tuple[int, ...] | None


class TurnEnd(NamedTuple):
    """The token at which sampling stops after an answer."""

    token: int
    borrowed: str = ""
    """The text of the next message up to that token; empty if the answer's own turn has it."""


class ChatTokenizer:
    """The checkpoint's tokenizer, reduced to the operations that serving needs; safe to call from any thread."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, options: ChatOptions | None = None) -> None:
        self.hf = tokenizer
        self._options = options or ChatOptions()
        self._now = datetime.fromisoformat(self._options.now)
        self.token_text = cache(partial(_decode_token, tokenizer))  # a bound method would keep this object
        """A token as a logprobs entry shows it; special tokens included."""
        self._marking = threading.Lock()
        self._marked: set[int] = set()
        """Sequences of roles that were rendered with marks."""
        self.lost: set[str] = set()
        """What the template has left out of the chats that were rendered."""
        self._warns = not self._options.sanitize_control_tokens

    @property
    def eos_token_id(self) -> int | None:
        eos: int | None = self.hf.eos_token_id
        return eos

    @property
    def special_tokens(self) -> list[str]:
        """The texts of tokens that are structure, such as the end of a turn."""
        added = self.hf.added_tokens_decoder.values()
        return list(dict.fromkeys([*(token.content for token in added if token.special), *self.hf.all_special_tokens]))

    @cached_property
    def control_tokens(self) -> re.Pattern[str]:
        """Finds the special tokens in a text."""
        return re.compile("|".join(map(re.escape, sorted(self.special_tokens, reverse=True))) or "(?!)")

    @cached_property
    def words(self) -> Words:
        """How the model writes calls and thinking; found with some dozens of renderings of its chat template."""
        self._check_template()
        source, own = self.hf.get_chat_template(None, list(TOOLS)), self.hf.response_template
        declared = self._options.response_template
        try:
            return choose(self._written, source, marks=self.special_tokens, declared=declared, own=own)
        except FormatRefused as error:
            hint = "correct it, or leave it out: most formats are found in the chat template"
            raise ModelNotSupported(f"response_template: {error}", hint=hint) from error

    def check_options(self) -> None:
        """Raise ModelNotSupported if the configured variables or format are not for this model."""
        try:
            self._check_variables(self._options.variables)
        except ChatNotRendered as error:
            raise ModelNotSupported(f"{error.param}: {error}", hint="leave it out") from error
        if self._options.response_template is not None:
            _ = self.words

    def _check_variables(self, variables: Mapping[str, Any]) -> None:
        reserved = _RESERVED | self.hf.special_tokens_map.keys()
        if names := sorted(reserved.intersection(variables)):
            message = f"{', '.join(names)}: not a variable of a chat template but an argument of its renderer"
            raise ChatNotRendered(message, param="chat_template_kwargs")

    @cached_property
    def size(self) -> int:
        """The highest id, plus 1."""
        return 1 + max(self.hf.get_vocab().values())

    def render_chat(
        self, messages: Sequence[dict[str, Any]], *, tools: Sequence[dict[str, Any]] | None = None
    ) -> list[int]:
        """Token ids of a conversation, ready for the assistant's next message."""
        return self.encode_rendered(self.render_text(messages, tools=tools))

    def render_text(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        template_arguments: Mapping[str, Any] | None = None,
        for_answer: bool = True,
    ) -> str:
        """The same as the text that the chat template writes; without `for_answer`, it ends with the last message.

        Messages that it leaves out are warned of, once for each role, and once a control token in a text of others than
        the assistant.
        """
        self._check_template()
        variables = template_arguments or {}
        self._check_variables(variables)
        if not messages:
            raise ChatNotRendered("there are no messages")
        text = self._written(messages, tools=tools, for_answer=for_answer, variables=variables)
        said = [(m.get("role"), bool(m.get("content")), bool(m.get("tool_calls"))) for m in messages]
        shape = hash(repr((said, not tools, variables)))
        with self._marking:
            if shape not in self._marked:
                self._marked.add(shape)
                for kind in self.left_out(messages, tools=tools, variables=variables):
                    if kind not in self.lost:
                        self.lost.add(kind)
                        notices.warning(
                            "the chat template leaves out: %s (in a chat of %s), so the model never sees it; put its "
                            "text into another message, or use a chat template that writes it",
                            *(kind, ", ".join(str(role) for role, _, _ in said)),
                        )
        others = (str(message.get("content")) for message in messages if message.get("role") != "assistant")
        if self._warns and (found := self.control_tokens.search("\n".join(others))) is not None:
            self._warns = False
            notices.warning(
                "a message has %s in its text, a control token of this model, with which it can end its turn and begin "
                "another; the LLM's `sanitize_control_tokens: true` keeps such tokens text",
                found.group(),
            )
        return text

    def left_out(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        variables: Mapping[str, Any] = MappingProxyType({}),
    ) -> list[str]:
        """What of these messages the template does not write, found by a mark in each; nothing if it refuses them."""
        marked, marks = [], {}
        for at, message in enumerate(messages):
            own, text, calls = dict(message), message.get("content"), message.get("tool_calls")
            if isinstance(text, str) and text:
                own["content"] = f"zqtext{at}q {text} zqtext{at}q ..."  # some cut thinking or closing marks off
                marks[f"zqtext{at}q"] = "text beside a tool call" if calls else f"{message.get('role')} message"
            if calls:
                own["tool_calls"] = [_with_arguments(call, partial(_marked, f"zqcall{at}q")) for call in calls]
                marks[f"zqcall{at}q"] = "tool call"
            marked.append(own)
        try:
            written = self._written(marked, tools=tools, for_answer=True, variables=variables)
        except ChatNotRendered:
            return []
        return [kind for mark, kind in marks.items() if mark not in written]

    def turn_end(self, stops: Set[int], *, calls: bool) -> TurnEnd | None:
        """What ends an answer in the template: a token of `stops`, or else a special one; None if it writes neither."""
        own, following = self._after_answers[calls]
        ends = stops | {self.hf.convert_tokens_to_ids(mark) for mark in self.special_tokens}
        closing = [token for token in self.encode_rendered(own) if token in ends]
        opening = [token for token in self.encode_rendered(following.lstrip())[:1] if token in ends]
        if stopping := [token for token in closing if token in stops]:
            return TurnEnd(stopping[0])
        if opening and (opening[0] in stops or not closing):
            mark = self.token_text(opening[0]).text
            return TurnEnd(opening[0], following.partition(mark)[0] + mark)
        return TurnEnd(closing[-1]) if closing else None

    @cached_property
    def _after_answers(self) -> list[tuple[str, str]]:
        return [after_answer(self._written, calls=calls) for calls in (False, True)]

    def _written(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        tools: Sequence[dict[str, Any]] | None,
        for_answer: bool,
        variables: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        plain = [_plain_message(message) for message in messages]
        offered = None if tools is None else list(tools)
        if self._options.sanitize_control_tokens:
            mark = partial(mark_control_tokens, control_tokens_re=self.control_tokens)
            plain = [message if message.get("role") == "assistant" else mark(message) for message in plain]
            offered = mark(offered)
        known = {**self.hf.special_tokens_map, **self._options.variables, **variables}
        named = {**known, "documents": None, "tools": offered, "add_generation_prompt": for_answer}
        refusal: Exception | None = None
        try:
            template: Template = _compile_jinja_template(self.hf.get_chat_template(None, offered))  # it keeps some
        except (ValueError, TemplateError) as error:  # no template by default, or one that cannot be read
            raise ChatNotRendered(without_surrogates(describe_error(error))) from error
        for spelt in chain([plain], _respelt(plain)):
            try:
                return template.render({**named, "messages": spelt, "strftime_now": self._now.strftime})
            except Exception as error:  # noqa: BLE001 - a template raises whatever Python raises in it
                refusal = refusal or error
        assert refusal is not None, "there is a spelling"
        raise ChatNotRendered(without_surrogates(describe_error(refusal))) from refusal

    def _check_template(self) -> None:
        if self.hf.chat_template is None:
            raise ModelNotSupported(
                "the model's tokenizer has no chat template, so chat messages cannot be rendered",
                hint="use /v1/completions, or add a chat_template.jinja to the tokenizer's folder",
            )

    def encode_rendered(self, text: str) -> list[int]:
        """Token ids of a rendered template, with the special tokens that it has, and none in texts that stay text."""
        return self.encode(text, special=False, marked=self._options.sanitize_control_tokens)

    def encode(self, text: str, *, special: bool = True, marked: bool = False) -> list[int]:
        """Token ids of a plain prompt, with the special tokens that the model expects around a text."""
        ids: list[int]
        try:
            if marked:
                ids = encode_marked_chat(self.hf, text)
            elif isinstance(self.hf, PreTrainedTokenizerFast):  # without the offsets that `hf.encode` computes
                ids = self._fast.encode_batch_fast([text], add_special_tokens=special)[0].ids
            else:  # the server reports a text that is too long itself; `verbose` would also log it
                ids = self.hf.encode(text, add_special_tokens=special, verbose=False)
        except Exception as error:  # tokenizers raises nothing more specific
            message = f"the model's tokenizer cannot encode this text: {without_surrogates(describe_error(error))}"
            raise ModelNotSupported(message) from error
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a completion, without special tokens and without cosmetic changes to spaces."""
        text = self.hf.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert isinstance(text, str), "one sequence decodes to one text"
        return text

    def decode_marked(self, token_ids: Sequence[int]) -> str:
        """The text of a completion as `decode` gives it, with the special tokens where they stand."""
        text, parts, plain = self.decode(token_ids), [], list[int]()
        told = written = 0
        for token_id in token_ids:
            if token_id not in self._hidden:
                plain.append(token_id)
                continue
            end = written
            if told < len(plain):
                known = plain[max(0, told - _CONTEXT) : told]
                end += len(self.decode(known + plain[told:])) - len(self.decode(known))
            parts += [text[written:end], self.token_text(token_id).text]
            told, written = len(plain), end
        return "".join([*parts, text[written:]])

    @cached_property
    def _hidden(self) -> frozenset[int]:
        ids = map(self.hf.convert_tokens_to_ids, self.special_tokens)
        return frozenset(token_id for token_id in ids if isinstance(token_id, int) and not self.decode([token_id]))

    def decode_all(self, token_ids: Sequence[int]) -> str:
        """The text of token ids, special tokens included; ids that the tokenizer does not have give none."""
        known = [token_id for token_id in token_ids if token_id < self.size]
        text = self.hf.decode(known, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        assert isinstance(text, str), "one sequence decodes to one text"
        return text

    @cached_property
    def _fast(self) -> Any:
        fast: Any = self.hf
        fast.backend_tokenizer.no_truncation()
        fast.backend_tokenizer.no_padding()
        fast.backend_tokenizer.encode_special_tokens = fast.split_special_tokens
        return fast.backend_tokenizer


def _decode_token(tokenizer: PreTrainedTokenizerBase, token_id: int) -> TokenText:
    text = tokenizer.decode([token_id], clean_up_tokenization_spaces=False)
    assert isinstance(text, str), "one sequence decodes to one text"
    if REPLACEMENT not in text:
        return TokenText(text, tuple(text.encode()))
    entry = str(tokenizer.convert_ids_to_tokens(token_id))  # as byte-level or byte-fallback BPE spells its bytes
    if len(entry) == len("<0x00>") and entry.startswith("<0x"):
        return TokenText(text, (int(entry[3:5], 16),))
    table = _byte_level_alphabet()
    return TokenText(text, tuple(table[c] for c in entry) if all(c in table for c in entry) else None)


@cache
def _byte_level_alphabet() -> dict[str, int]:
    """GPT-2's printable character for each byte: printable Latin-1 as it is, the others from U+0100 up."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(hidden)}


def template_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """An API message for the template: content as one text, call arguments as objects, no nulls but the content.

    Raises:
        ChatNotRendered: the content has a part that is not text.

    """
    plain = {key: value for key, value in message.items() if value is not None or key == "content"}
    try:
        plain["content"] = joined_text(plain.get("content"))
    except ValueError as error:
        raise ChatNotRendered(str(error)) from error
    if plain.get("role") == "developer":
        plain["role"] = "system"  # OpenAI's newer name of the role, unknown to open models
    if "tool_calls" in plain:
        plain["tool_calls"] = [_with_arguments(call, _parsed_arguments) for call in plain["tool_calls"]]
    return plain


def _plain_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message as transformers gives it to a template: without nulls, and with its reasoning under both names."""
    known = {key: value for key, value in message.items() if value is not None}
    reasoning = next((known[name] for name in REASONING if name in known), None)
    return known if reasoning is None else {"thinking": reasoning, **known, "reasoning_content": reasoning}


def _respelt(messages: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The messages as templates want them that take no missing content, or ids of one form, or arguments as texts."""
    filled = [{"content": "", **message} for message in messages]
    yield filled
    yield [_with_short_ids(message) for message in filled]
    if any(message.get("tool_calls") for message in filled):
        yield [
            {**message, "tool_calls": [_with_arguments(call, _text_of) for call in message.get("tool_calls") or ()]}
            for message in filled
        ]


def _with_short_ids(message: dict[str, Any]) -> dict[str, Any]:
    calls = {"tool_calls": [{**call, "id": _short(call.get("id"))} for call in message.get("tool_calls") or ()]}
    answered = {"tool_call_id": _short(message.get("tool_call_id"))}
    return message | {key: new for key, new in (calls | answered).items() if key in message}


def _short(call_id: Any) -> str:
    return blake2b(str(call_id).encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()[:9]


def _with_arguments(call: Any, spelt: Callable[[Any], Any]) -> Any:
    if not isinstance(call, Mapping) or not isinstance(function := call.get("function"), Mapping):
        return call
    return {**call, "function": {**function, "arguments": spelt(function.get("arguments") or {})}}


def _marked(mark: str, arguments: Any) -> Any:
    return {**arguments, mark: mark} if isinstance(arguments, Mapping) else f"{arguments} {mark}"


def _text_of(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def template_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """An API tool for the template: a bare function definition is wrapped, a doubly wrapped one unwrapped."""
    inner = tool.get("function")
    if isinstance(inner, Mapping) and inner.get("type") == "function" and isinstance(inner.get("function"), Mapping):
        return template_tool(inner)
    return dict(tool) if "function" in tool else {"type": "function", "function": dict(tool)}


def _parsed_arguments(arguments: Any) -> Any:
    """Parse arguments in a string: templates write them with `tojson`, which would quote the string again."""
    if not isinstance(arguments, str):
        return arguments
    try:
        value = parse_json(arguments)
    except ValueError:
        return arguments
    return value if isinstance(value, dict) else arguments
