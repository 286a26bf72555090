"""The certificate of `nat fits` as text."""

import json
from collections.abc import Iterator, Mapping

import yaml

from nat.reports.text import printable
from nat.sizing.certificate import Certificate, Refusal, Way
from nat.sizing.forecast import bytes_text

Row = tuple[str, str]
_WIDTH = 12
_MANY = 10**8
_YES, _NO = "✓", "✗"


def certificate_page(found: Certificate) -> str:
    """Name and text of each part, the verdict, and the block for the YAML."""
    lines = [f"{name:<{_WIDTH}} {text}".rstrip() for name, text in _rows(found)]
    problems = found.problems
    verdict = "it fits, and what is above is proven" if not problems else "; ".join(problems)
    lines += ["", f"{_NO if problems else _YES} {found.model}: {verdict}"]
    if found.block is not None and not problems:
        lines += ["", "For the YAML:", "", _yaml(found.block).rstrip()]
    return "\n".join(map(printable, lines))


def _yaml(block: Mapping[str, object]) -> str:
    return yaml.safe_dump({"llms": {"student": dict(block)}}, sort_keys=False, allow_unicode=True)


def _rows(found: Certificate) -> Iterator[Row]:
    count = found.num_parameters or 0
    size = f", {count / 1e9:.3g} billion weights" if count >= _MANY else f", {count:,} weights" if count else ""
    family = "not known" if found.family is None else f"{found.family} ({found.architecture}){size}"
    yield "Family", family
    if found.revision is not None:
        yield "", f"commit {found.revision}"
    if found.context is not None:
        yield "Context", f"{found.context:,} tokens"
    yield from _layers(found)
    yield from _words(found)
    for talk in found.conversations:
        if talk.rows is None:
            yield "Conversation", f"{_NO} {talk.title}: {talk.problem}"
            continue
        exact = "each turn continues the tokens of the last" if talk.rows == 1 else f"drift: {', '.join(talk.drift)}"
        rows = "1 row" if talk.rows == 1 else f"{talk.rows} rows"
        yield "Conversation", f"{talk.title}: {talk.answers} answers, {rows} per rollout; {exact}"
    if found.ways:
        room = "" if found.room is None else f"; {bytes_text(found.room)} may be taken"
        yield "Memory", f"predicted for {found.device}{room}; {found.workload}"
        for way in found.ways:
            yield "", _way(way)
    if found.ways:
        yield "Time", "`nat finetune --dry_run` measures it, with the weights"


def _refused(refusal: Refusal) -> str:
    return f"{_NO} {refusal.message}" + (f" ({refusal.hint})" if refusal.hint else "")


def _layers(found: Certificate) -> Iterator[Row]:
    layers = found.layers
    if layers.refusal is not None:
        yield "Layers", _refused(layers.refusal)
    elif layers.tried:
        yield "Layers", f"{_YES} a small model of this class samples and trains as transformers computes it"
    else:
        yield "Layers", f"judged by the configuration alone, which names nothing unsupported: {layers.untried}"


def _words(found: Certificate) -> Iterator[Row]:
    words = found.words
    if words.format is None:
        if words.refusal is not None:
            yield "Words", _refused(words.refusal)
        return
    calls = "the chat template writes no tool calls"
    if words.writes_calls:
        calls = "tool calls are read" if words.refusal is None else _refused(words.refusal)
    yield "Words", f"format: {words.format}; {calls}; thinking is {'' if words.reads_thinking else 'not '}told apart"
    for kind, how in words.misread.items():
        yield "", f"misread: {kind}: {how}"


def _way(way: Way) -> str:
    memory = way.memory
    host = f", {bytes_text(memory.host)} of the host" if memory.host else ""
    longest = "" if memory.longest_row is None else f": max_seq_length up to {memory.longest_row:,}"
    fits = f"fits{longest}" if way.problem is None else "does not fit"
    return f"{memory.title:<15}{bytes_text(memory.total):>9}{host}; {fits}"


def certificate_json(found: Certificate) -> str:
    """The certificate with its verdict, as one JSON object."""
    shown = found.model_dump(mode="json") | {"fits": not found.problems, "problems": found.problems}
    return json.dumps(shown, ensure_ascii=False)
