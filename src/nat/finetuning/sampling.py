"""Warnings and errors about answers that were not drawn from the model's own distribution. Pure.

`nat.wire.sampling` lists the fields of a request that change the distribution.
"""

from collections import Counter
from collections.abc import Iterable

from nat.runs.rollouts import RolloutRecord
from nat.wire.sampling import FORCED, Sampling

REPLACE = "finetuning.sampling_in_training: {temperature: 1.0}"
"""The setting that samples training rollouts from the model's own distribution."""


def remedy(untrainable: Iterable[str]) -> str:
    """Advice about fields that make answers untrainable, each given as `field=value`."""
    names = {field.partition("=")[0] for fields in untrainable for field in fields.split(", ")}
    forced = sorted(names & FORCED.keys())
    parts = []
    if names - FORCED.keys():
        parts.append(
            "Sample with a temperature above 0 and without top_p, top_k, min_p, penalties and biases; or set "
            f"`{REPLACE}`, which replaces them in training rollouts only."
        )
    if forced:
        parts.append(f"Let the model answer without {' and '.join(forced)}, and let the reward teach the form.")
    return " ".join(parts)


def sampling_notes(records: Iterable[RolloutRecord]) -> dict[str, str]:
    """Warnings about these rollouts; a repeated warning has the same key."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for record in records:
        for kind, own in (("untrainable", record.untrainable_calls), ("untempered", record.untempered_calls)):
            for function, calls in own.items():
                found.setdefault((kind, function), Counter()).update(calls)
    notes = {}
    for (kind, function), calls in found.items():
        listed = "; ".join(f"{how} ({count} calls)" for how, count in calls.most_common())
        what = f": these answers are not drawn from the trained distribution, so they are left out. {remedy(calls)}"
        if kind == "untempered":
            what = (
                ", but the server does not report log probabilities at this temperature, so the answers are trained as "
                f"if they were sampled at 1. Sample at 1, or set `{REPLACE}`; `nat backend serve` and `local` LLMs "
                "train each temperature as it is sampled."
            )
        notes[f"{kind} {function}"] = f"function '{function}' samples with {listed}{what}"
    return notes


def block_finding(key: str, sampling: Sampling) -> str:
    """The finding about an LLM block with which no answer can be trained on."""
    fields = ", ".join(sampling.untrainable_by)
    return f"llms.{key}: answers sampled with {fields} cannot be trained on. {remedy(sampling.untrainable_by)}"
