"""What a call's region means: function and arguments, with the types of the tool's schema."""

import ast
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers.utils.chat_parsing.content_parsers import process_field
from transformers.utils.chat_parsing.response_templates import ResponseTemplateField, load_response_template

from nat.backend.words.formats import NEVER
from nat.wire.json import parse_json

_NAMES, _ARGUMENTS = ("name", "tool_name"), ("arguments", "parameters")
_BESIDE = {"id", "type", "tool_call_id", "index"}
"""Keys that may stand beside a call without arguments."""
_ESCAPE = re.compile(r"\\([\\'\"abfnrtvxuUN0-7]?)")
_PYTHON_WORD = re.compile(r"(?<=[:,\[])(?:None|True|False)(?=[,}\]])")
_JSON_NAMES: dict[str, Any] = {"true": True, "false": False, "null": None}
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "boolean": (bool,),
    "null": (type(None),),
    "integer": (int,),
    "number": (int, float),
}
_SECONDS = 0.2
"""Of a search for tags, which takes far less if they are closed."""
Parameters = Mapping[str, Mapping[str, Any]]
"""For each function the schemas of its parameters."""


class MalformedCall(ValueError):
    """The text between a call's marks is no call."""


@dataclass(frozen=True)
class Call:
    """A function's name and its arguments as JSON text."""

    name: str
    arguments: str
    call_id: str | None = None
    """As the model wrote it, if its format has the name in the id: the template writes it again."""


def parameters_of(tools: Iterable[Mapping[str, Any]]) -> Parameters:
    """The parameters of the functions that were offered, in the form of OpenAI or bare."""
    functions = [_mapping(tool.get("function")) or tool for tool in tools]
    return {str(each.get("name")): _mapping(_mapping(each.get("parameters")).get("properties")) for each in functions}


def _mapping(value: Any) -> Mapping[str, Any]:
    """What a client may have written in place of an object counts as an empty one."""
    return value if isinstance(value, Mapping) else {}


def calls_in(body: str, field: ResponseTemplateField, captures: dict[str, str], parameters: Parameters) -> list[Call]:
    """The calls of a region; text holds calls as Python writes them, which no parser of transformers reads.

    Raises:
        ValueError, KeyError, TypeError, RecursionError: it has none, or a part of it was not read.

    """
    if field.content == "xml-inline" and _is_misread(body, field):
        raise MalformedCall("arguments that are not closed")
    value = _parsed(body, field, captures)
    records = value if isinstance(value, list) else [value]
    calls = _python_calls(value) if isinstance(value, str) else [name_and_arguments(record) for record in records]
    if not calls:
        raise MalformedCall("no call")
    # JSON has types of its own; tags have only text.
    typed = parameters if field.content != "json" else {}
    return [_written(name, arguments, typed) for name, arguments in calls]


def _parsed(body: str, field: ResponseTemplateField, captures: dict[str, str]) -> Any:
    try:
        return process_field(body, field, captures)
    except ValueError:
        plain = _PYTHON_WORD.sub(lambda word: json.dumps(ast.literal_eval(word.group())), body)
        if not field.content_args.get("unquoted_keys") or plain == body:
            raise
        return process_field(plain, field, captures)


def _written(name: str, arguments: Any, parameters: Parameters) -> Call:
    is_text = isinstance(arguments, str)  # as OpenAI writes it
    values = parse_json(arguments) if is_text else arguments
    if not isinstance(values, dict):
        raise MalformedCall("arguments that are no object")
    if is_text:
        return Call(name, arguments)
    schemas = parameters.get(name, {})
    typed = {key: _typed(value, _types(schemas.get(key))) for key, value in values.items()}
    return Call(name, json.dumps(typed, ensure_ascii=False))


def name_and_arguments(record: Any) -> tuple[str, Any]:
    """The parts of a call's object, under the names that model families use; raises MalformedCall."""
    if isinstance(record, dict) and isinstance(record.get("function"), dict):
        record = record["function"]
    if not isinstance(record, dict) or not record:
        raise MalformedCall("a call that is no object")
    names = [key for key in _NAMES if isinstance(record.get(key), str)]
    arguments = [key for key in _ARGUMENTS if key in record]
    if not names and not arguments and len(record) == 1:  # {"name": {arguments}}
        return next(iter(record.items()))
    if not names or len(arguments) > 1 or (not arguments and not record.keys() <= {*_NAMES, *_BESIDE}):
        raise MalformedCall("a call without a name, or with parts that are not known")
    return record[names[0]], record[arguments[0]] if arguments else {}


def _python_calls(text: str) -> list[tuple[str, dict[str, Any]]]:
    escaped = _ESCAPE.sub(lambda found: found.group() if found[1] else r"\\", text.strip())
    try:
        tree = _JsonWords().visit(ast.parse(escaped.replace("\n", "\\n"), mode="eval").body)  # quoted, not escaped
    except (SyntaxError, MemoryError) as error:
        raise MalformedCall("no calls as Python writes them") from error
    calls = []
    for node in tree.elts if isinstance(tree, ast.List | ast.Tuple) else [tree]:
        if not isinstance(node, ast.Call) or node.args or any(word.arg is None for word in node.keywords):
            raise MalformedCall("no call with named arguments")
        calls.append((ast.unparse(node.func), {str(word.arg): ast.literal_eval(word.value) for word in node.keywords}))
    return calls


class _JsonWords(ast.NodeTransformer):
    """Takes JSON's words in Python's text for their values."""

    def visit_Name(self, name: ast.Name) -> ast.expr:
        return ast.Constant(_JSON_NAMES[name.id]) if name.id in _JSON_NAMES else name


def _types(schema: Any) -> list[str]:
    if not isinstance(schema, Mapping):
        return []
    declared = schema.get("type") or []
    types = [declared] if isinstance(declared, str) else [str(kind) for kind in _items(declared)]
    types += [kind for union in ("anyOf", "oneOf") for choice in _items(schema.get(union)) for kind in _types(choice)]
    return [*types, "null"] if schema.get("nullable") else types


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _typed(value: Any, types: list[str]) -> Any:
    if not isinstance(value, str):
        return value
    readings = _readings(value.strip()) if types else []
    for kind in types:
        for reading in readings:
            if type(reading) in _TYPES.get(kind, ()):
                return reading
        if kind == "string" and not ("null" in types and value.strip() in {"null", "None"}):
            return value
    return value


def _readings(text: str) -> list[Any]:
    """The text's values as JSON and as Python; of a number without a fraction, the integer too."""
    values = []
    for read in (parse_json, ast.literal_eval, lambda text: _JSON_NAMES[text.lower()]):
        try:
            values.append(read(text))
        except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError):
            continue
    return [*values, *(int(value) for value in values if isinstance(value, float) and value.is_integer())]


def _is_misread(body: str, field: ResponseTemplateField) -> bool:
    """True if text stands between the tags, or an argument begins inside another one, which was not closed."""
    tag = {"open_pattern": field.content_args["tag_pattern"], "transform": "{content}"}
    found = load_response_template({"start_anchor": NEVER, "fields": {"tag": tag}}).fields["tag"].open_re
    try:
        rest, count = found.subn("", body, timeout=_SECONDS)
        return bool(rest.strip()) or count != len(found.findall(body, overlapped=True, timeout=_SECONDS))
    except TimeoutError:  # tags that nothing closes are searched to the end, each
        return True
