"""Read a request's sampling distribution, and whether its answer can be trained on. Pure.

One rule for the fields of a request and of an LLM block in the YAML. A temperature T is trainable: the answer comes
from softmax(logits / T), which the learner can compute again. Other fields that change the distribution are not, since
the reported log probabilities are not those of the sampled distribution.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MIN_TEMPERATURE = 0.01
"""Below this, sampling is practically greedy (vLLM raises lower temperatures to it), and gradients grow with 1/T."""
MAX_TEMPERATURE = 100.0

_LONGEST_SHOWN = 20
_MOST_DIGITS = 18
"""A number with more digits is not accepted as a count."""

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "top_p": (1,),
    "top_k": (-1, 0),
    "min_p": (0,),
    "typical_p": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({}, []),
    "min_tokens": (0,),
    "best_of": (1,),
    "use_beam_search": (False,),
    "bad_words": ([],),
    "allowed_token_ids": (None,),
    "logits_processors": ([],),
    "min_new_tokens": (0,),
    "custom_logit_processor": (None,),
    "repeat_penalty": (1,),
    "dry_multiplier": (0,),
    "xtc_probability": (0,),
    "dynatemp_range": (0,),
    "mirostat": (0,),
    "top_n_sigma": (-1, 0),
    "tfs_z": (1,),
    "top_a": (0,),
}
"""Fields that change the distribution, each with its neutral values; the first one replaces other values. `null` is
always neutral. The names are those of OpenAI, vLLM, SGLang and llama.cpp."""

FORCED: Mapping[str, tuple[Any, ...]] = {
    "response_format": ({"type": "text"},),
    "tool_choice": ("auto", "none"),
    "function_call": ("auto", "none"),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "grammar": (),
    "json_schema": (),
    "regex": (),
    "ebnf": (),
    "structural_tag": (),
}
"""Fields that force a format on the answer, with neutral values; never replaced, because the agent needs the format."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The distribution of an answer."""

    temperature: float = 1.0
    """Temperature of the softmax; 1 is the server's default."""
    untrainable_by: tuple[str, ...] = ()
    """The fields that make it untrainable, as `field=value`; empty if it is trainable."""

    @property
    def trainable(self) -> bool:
        return not self.untrainable_by


MODELS_OWN = Sampling()
"""The distribution that the model defines."""


def read_sampling(fields: Mapping[str, Any]) -> Sampling:
    """The distribution that a request with these fields is answered from."""
    temperature = _temperature(fields.get("temperature"))
    untrainable = [
        name for known in (NEUTRAL, FORCED) for name in known if not _is_neutral(fields.get(name), known[name])
    ]
    if temperature is None:
        untrainable.insert(0, "temperature")
    return Sampling(temperature or 1.0, tuple(f"{name}={_short(fields[name])}" for name in untrainable))


def target_names(target_model: str | None) -> set[str]:
    """The names in a `finetuning.target_model`, which commas separate; none means any model."""
    return {name.strip() for name in (target_model or "").split(",")} - {""}


def replaced(fields: Mapping[str, Any], temperature: float) -> dict[str, Any]:
    """The fields to set so that the answer comes from the model's own distribution at this temperature."""
    untrainable = {name: known[0] for name, known in NEUTRAL.items() if not _is_neutral(fields.get(name), known)}
    return {"temperature": temperature, **untrainable}


def read_count(value: Any) -> int | None:
    """A whole number of at least 1, also from `100.0` or `"100"` as lenient servers accept; else None."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < _MOST_DIGITS else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < 10**_MOST_DIGITS:
        return None
    return int(value) if value == int(value) else None


def _temperature(value: Any) -> float | None:
    """The temperature if it is trainable; like servers, this accepts numbers in strings."""
    if value is None:
        return 1.0
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if MIN_TEMPERATURE <= number <= MAX_TEMPERATURE else None


def _is_neutral(value: Any, neutral: tuple[Any, ...]) -> bool:
    if isinstance(value, str) and not any(isinstance(known, str) for known in neutral):
        try:
            value = float(value)
        except ValueError:
            return False
    return value is None or value in neutral


def _short(value: Any) -> str:
    """A short value as text; `…` for anything longer."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST_SHOWN and "," not in text and not isinstance(value, dict | list) else "…"
