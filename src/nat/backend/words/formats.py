"""A format: how a model family writes tool calls and thinking, as a `response_template` of transformers.

Fields of the template that count here: `content`, `reasoning_content` (also called `thinking`) and `tool_calls`.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from transformers.utils.chat_parsing.response_templates import (
    ResponseTemplate,
    ResponseTemplateField,
    load_response_template,
)

from nat.backend.words.marks import disjoint

CONTENT, CALLS = "content", "tool_calls"
REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names of the field of a model's thinking."""
NEVER = "\0"
"""A start anchor for templates that get no prompt: the text that is read begins with the answer."""


class FormatRefused(ValueError):
    """A response template that cannot be used."""


@dataclass(frozen=True)
class Format:
    """A response template and where it comes from."""

    template: Mapping[str, Any]
    origin: str
    """For messages: the YAML, the tokenizer, the template, or a family of the registry."""
    specials: frozenset[str] = frozenset()
    """Marks that are hidden and say nothing about the text around them."""

    @classmethod
    def of(
        cls,
        origin: str,
        calls: Mapping[str, Any],
        *,
        hidden: Collection[str] = (),
        thinking: tuple[str, str] | None = None,
    ) -> "Format":
        """A format of calls, of marks that are no content, and of marks around the thinking."""
        fields: dict[str, Any] = {CONTENT: {"close": list(hidden)} if hidden else {}, CALLS: {**calls, "repeats": True}}
        if thinking is not None:
            fields[REASONING[0]] = {"open": thinking[0], "close": thinking[1], "content": "text"}
        return cls({"start_anchor": NEVER, "fields": fields}, origin)

    @property
    def fields(self) -> dict[str, ResponseTemplateField]:
        """The template's fields, compiled; raises FormatRefused if it is none."""
        return self._compiled.fields

    @cached_property
    def _compiled(self) -> ResponseTemplate:
        try:
            raw = dict(self.template["fields"])
            raw[CONTENT] = _without_marks(raw[CONTENT])
            return load_response_template({**self.template, "fields": raw})
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise FormatRefused(f"{self.origin}: no response template: {error}") from error

    @cached_property
    def regions(self) -> ResponseTemplate:
        """The same marks around regions that are all text, so that the parser never raises."""
        text: dict[str, Any] = {"content": "text", "content_args": {"strip": False}, "repeats": True, "optional": True}
        plain: dict[str, Any] = {"join": None, "transform": None, "transform_each": False}
        fields = {name: replace(field, **text, **plain) for name, field in self.fields.items()}
        return replace(self._compiled, defaults={}, fields=fields, start_anchor_re=re.compile(NEVER))

    @cached_property
    def reasoning(self) -> str | None:
        """The name of the field of the model's thinking, if there is one."""
        return next((name for name in REASONING if name in self.fields), None)

    @property
    def thinking_marks(self) -> tuple[list[str], list[str]]:
        """The marks that begin the thinking, and those that end it."""
        field = self.fields.get(self.reasoning or "")
        return ([], []) if field is None else (field.open_literals or [], field.close_literals or [])

    def prefix(self, prompt: str) -> str:
        """The mark of thinking with which a prompt ends, else nothing: such an answer begins inside the thinking."""
        end = prompt.rstrip()
        return next((mark for mark in self.thinking_marks[0] if end.endswith(mark.strip())), "")

    def hiding(self, marks: Collection[str]) -> "Format":
        """The same format, which keeps these marks out of the content: special tokens that have no meaning in it."""
        known = self.fields[CONTENT].close_literals or []
        if self.fields[CONTENT].close_re is not None and not known:
            return self
        own = [part for field in self.fields.values() for part in (field.open_re, field.close_re) if part is not None]
        used = "".join(part.pattern.replace("\\", "") for part in own)
        hidden = disjoint([*known, *(mark for mark in marks if mark.replace("\\", "") not in used)])
        raw = _without_marks(self.template["fields"][CONTENT])
        content = {**raw, "close": hidden} if hidden else raw
        template = {**self.template, "fields": {**self.template["fields"], CONTENT: content}}
        return Format(template, self.origin, frozenset(marks))

    @cached_property
    def without_calls(self) -> "Format":
        """The same format for answers in which calls are text."""
        fields = {name: field for name, field in self.template["fields"].items() if name != CALLS}
        return Format({**self.template, "fields": fields}, self.origin).hiding(self.specials)


def _without_marks(content: Mapping[str, Any]) -> dict[str, Any]:
    """The field of content such that text outside of its marks is content as well."""
    if not isinstance(content.get("open"), str | list):
        return dict(content)
    marks = [content[key] for key in ("open", "close") if key in content]
    rest = {key: value for key, value in content.items() if key not in {"open", "close"}}
    return {**rest, "close": [mark for each in marks for mark in ([each] if isinstance(each, str) else each)]}
