"""`llm_judge`: a language model reads the answer and gives a score."""

import json
import re
from collections.abc import AsyncGenerator
from contextlib import suppress
from hashlib import sha256
from typing import Any

from pydantic import BaseModel, Field, ValidationError, field_validator

from nat.builder.builder import EvalBuilder
from nat.builder.evaluator import EvaluatorInfo
from nat.data_models.component_ref import LLMRef
from nat.data_models.evaluator import EvalInputItem, EvaluatorBaseConfig
from nat.errors import EvaluationError
from nat.plugins.evaluators.scores import ItemEvaluator, Score
from nat.registry.decorators import register_evaluator
from nat.secrets import excerpt
from nat.wire.json import text_or_json

DEFAULT_PROMPT = """\
Judge how good the answer to the question is.

Question:
{question}

Expected answer:
{expected}

Answer:
{answer}

Reply with one JSON object and nothing else: {"score": <0 for wrong, 1 for right, or between>, "reasoning": "<why>"}"""

_CODE = """

The object also has "code": "{}". It shows that the judgement is yours and no part of what you read."""
_FENCE = re.compile(r"^```(?:json)?|```$")
_PLACEHOLDER = re.compile(r"\{(question|expected|answer)\}")


class LLMJudgeConfig(EvaluatorBaseConfig, name="llm_judge"):
    """A model scores the answer between 0 and 1; an invalid judgement is an error, not a zero."""

    llm_name: LLMRef
    """The judge, a key of `llms`."""
    prompt: str = DEFAULT_PROMPT
    """The judge's prompt, with {question}, {expected} and {answer}; it must request the JSON object. A sentence that
    requests a code in the object follows it."""
    max_concurrency: int = Field(default=8, ge=1)
    """Concurrent judgements."""

    @property
    def needs_expected_answer(self) -> bool:
        """True if a custom prompt includes it; the default prompt works without."""
        return self.prompt != DEFAULT_PROMPT and "{expected}" in self.prompt

    @field_validator("prompt")
    @classmethod
    def _shows_the_answer(cls, prompt: str) -> str:
        if "{answer}" not in prompt:
            raise ValueError("the prompt has no {answer}, so the judge would not see what it judges")
        return prompt


class Judgement(BaseModel):
    """The reply of the judge."""

    score: float = Field(ge=0, le=1, allow_inf_nan=False, strict=True)
    reasoning: str = ""


def filled(prompt: str, item: EvalInputItem) -> str:
    """The prompt with all placeholders filled at once, so that braces in an answer are not replaced."""
    values = {"question": item.input_obj, "expected": item.expected_output_obj, "answer": item.output_obj}
    return _PLACEHOLDER.sub(lambda place: shown(values[place[1]]), prompt)


def parse_judgement(reply: str, code: str) -> Judgement:
    """The last JSON object with the code; models often reason before it, and quote what they read.

    An object without the code counts if it is the whole reply.
    """
    objects = [found for found in json_objects(reply) if "score" in found and found.get("code") == code]
    if not objects:
        with suppress(ValueError):
            whole = json.loads(_FENCE.sub("", reply.strip()))
            objects = [whole] if isinstance(whole, dict) and "score" in whole else []
    if not objects:
        raise EvaluationError(
            f"the judge gave no JSON object with a score and the code {code}: {excerpt(repr(reply), 200)}"
        )
    try:
        return Judgement.model_validate(objects[-1])
    except ValidationError as error:
        first = error.errors()[0]
        raise EvaluationError(
            f"the judge's {'.'.join(map(str, first['loc']))} is {first['input']!r}: {first['msg']}"
        ) from error


def json_objects(text: str) -> list[dict[str, Any]]:
    """The JSON objects in a text, in their order."""
    decoder = json.JSONDecoder()
    found: list[dict[str, Any]] = []
    start = text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except ValueError:
            end = start + 1
        else:
            found.append(value)
        start = text.find("{", end)
    return found


def shown(value: Any) -> str:
    """A value in a prompt: a text as it is, another value as JSON."""
    return "(none)" if value is None else text_or_json(value)


@register_evaluator(config_type=LLMJudgeConfig)
async def llm_judge(config: LLMJudgeConfig, builder: EvalBuilder) -> AsyncGenerator[EvaluatorInfo, None]:
    """Build the evaluator; the judge is called through the OpenAI client, which does the retries."""
    client = await builder.get_llm(config.llm_name, "openai")

    async def score(item: EvalInputItem) -> Score:
        prompt = filled(config.prompt, item)
        code = sha256(prompt.encode(errors="replace")).hexdigest()[:16]  # no text in the prompt can have it
        messages = [{"role": "user", "content": prompt + _CODE.format(code)}]
        completion = await client.chat.completions.create(model=client.model_name, messages=messages)
        judgement = parse_judgement(completion.choices[0].message.content or "", code)
        return judgement.score, judgement.reasoning

    evaluator = ItemEvaluator("llm_judge", score, config.max_concurrency)
    yield EvaluatorInfo(config=config, evaluate_fn=evaluator.evaluate, description=f"Judged by {config.llm_name}")
