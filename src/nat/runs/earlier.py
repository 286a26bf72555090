"""Rollouts that earlier releases recorded, in today's shape.

Until version 3 of the journal, a row had one log probability per token, None where it was not sampled, and counted
tokens in lists beside them. A conversation had the number of its sampled answers, not their places.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby, repeat
from operator import itemgetter
from typing import Any

Tree = dict[str, Any]


def row_with_spans(row: Mapping[str, Any]) -> Tree:
    """The fields of a row, whose sampled tokens are those that have a log probability."""
    logprobs = row["logprobs"]
    sampled = [at for at, logprob in enumerate(logprobs) if logprob is not None]
    facts = zip(
        (at - place for place, at in enumerate(sampled)),
        _of_tokens(row.get("returns"), "value", None),
        _of_tokens(row.get("temperatures"), "temperature", 1.0),
        _of_tokens(row.get("policy_versions"), "policy_version", None),
        strict=False,
    )
    spans = []
    for (_, value, temperature, version), tokens in groupby(zip(facts, sampled, strict=False), itemgetter(0)):
        places = [at for _, at in tokens]
        start, stop = places[0], places[-1] + 1
        span = {"start": start, "stop": stop, "logprobs": logprobs[start:stop], "temperature": temperature[1]}
        spans.append(span | {"value": value[1], "policy_version": version[1]})
    return {"token_ids": row["token_ids"], "spans": spans}


def _of_tokens(entries: Sequence[Mapping[str, Any]] | None, key: str, usual: Any) -> Iterator[tuple[int, Any]]:
    """The number and the value of the entry of each sampled token."""
    counted = (repeat((number, entry[key]), entry["num_tokens"]) for number, entry in enumerate(entries or ()))
    return chain(chain.from_iterable(counted), repeat((0, usual)))


def with_answers(record: Tree, spans_of_rows: Sequence[int]) -> Tree:
    """The record with the places of its answers: the last messages of the assistant, as their number was recorded.

    Rows and conversations began in the same order; they are matched if each row has as many spans as its conversation
    has answers.
    """
    conversations = record.get("conversations", [])
    matched = list(spans_of_rows) == [conversation["calls"] for conversation in conversations]
    found, begin = [], 0
    for number, conversation in enumerate(conversations):
        messages = record["messages"][begin : begin + conversation["messages"]]
        begin += conversation["messages"]
        said = [place for place, message in enumerate(messages) if message.get("role") == "assistant"]
        answers = [
            {"message": place, "row": number, "span": span} if matched else {"message": place}
            for span, place in enumerate(said[-conversation["calls"] :])
        ]
        found.append({key: value for key, value in conversation.items() if key != "calls"} | {"answers": answers})
    return record | {"conversations": found}
