"""`relative_judge`: a model scores the generations of an example against each other, by a rubric."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from random import Random
from typing import Any, Literal

from pydantic import Field, field_validator

from nat.builder.builder import EvalBuilder
from nat.builder.evaluator import EvaluatorInfo
from nat.data_models.component_ref import LLMRef
from nat.data_models.evaluator import EvalInputItem, EvalOutputItem, EvaluatorBaseConfig
from nat.errors import EvaluationError
from nat.eval.evaluator.group_evaluator import GroupEvaluator
from nat.plugins.evaluators.attempts import (
    MAX_CHARS,
    SCHEMA,
    AttemptScore,
    Message,
    Transcript,
    parsed,
    prompt,
    transcript,
)
from nat.plugins.evaluators.llm_judge import shown
from nat.registry.decorators import register_evaluator

TIE = 0.5
"""The score of attempts that are all the same, which no judge has to see."""
MAX_GROUP = 8
"""Attempts in one call; further ones are judged in further calls, each with one attempt of the first call."""
_PAIR = 2
"""So many attempts are judged a second time in reversed order, and the mean of both scores counts."""
_RESPONSE_FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "scores", "strict": True, "schema": SCHEMA},
}
_NO_SCHEMA = (400, 404, 415, 422, 501)
"""Status codes of servers that do not know an option."""
Ask = Callable[[Sequence[Message]], Awaitable[str]]
"""Sends messages and returns the text of the judge's reply."""


DEFAULT_RUBRIC = """\
- Whether the task was done counts most: an attempt that did what was asked is far above one that did not.
- Among attempts that did it, the more direct one is better: no needless steps, no errors on the way, no padding.
- Among attempts that did not, the one that came closer is better.
- A claim is worth only what the attempt shows for it.
- A small difference is worth a small difference in score; equally good attempts get the same score."""


class RelativeJudgeConfig(EvaluatorBaseConfig, name="relative_judge"):
    """A model scores the generations of an example against each other, so no expected answer is needed."""

    llm_name: LLMRef
    """The judge, a key of `llms`; not the model that is trained."""
    rubric: str = Field(default=DEFAULT_RUBRIC, min_length=1)
    """What makes an attempt better, in your words."""
    judged: Literal["trajectory", "answer"] = "trajectory"
    """What the judge sees of an attempt: its conversations and the answer, or only the answer."""
    seed: int = 0
    """Of the order in which attempts are shown."""
    max_concurrency: int = Field(default=8, ge=1)
    """Groups that are judged at the same time."""

    @property
    def compares_generations(self) -> bool:
        return True

    @field_validator("rubric")
    @classmethod
    def _says_something(cls, rubric: str) -> str:
        if not rubric.strip():
            raise ValueError("the rubric is empty, so the judge would not know what is better")
        return rubric


class ClientAsk:
    """Asks through an OpenAI client; remembers if the server refuses a schema."""

    def __init__(self, client: Any) -> None:
        """`client` is an `AsyncOpenAI` with a `model_name`; it does the retries."""
        self._client = client
        self._takes_schema = True

    async def __call__(self, messages: Sequence[Message]) -> str:
        from openai import APIStatusError

        if self._takes_schema:
            try:
                return await self._send(messages, response_format=_RESPONSE_FORMAT)
            except APIStatusError as error:
                if error.status_code not in _NO_SCHEMA:
                    raise
            reply = await self._send(messages)  # if it fails too, the schema was not the reason
            self._takes_schema = False
            return reply
        return await self._send(messages)

    async def _send(self, messages: Sequence[Message], **options: Any) -> str:
        client = self._client
        completion = await client.chat.completions.create(model=client.model_name, messages=list(messages), **options)
        if not completion.choices:
            raise EvaluationError("the judge's server sent no choice")
        return completion.choices[0].message.content or ""


async def ask_for_scores(ask: Ask, messages: Sequence[Message], count: int, code: str) -> list[AttemptScore]:
    """The scores of `count` attempts; a reply without the code or else unusable is answered once.

    Raises:
        EvaluationError: the second reply cannot be used either.

    """
    first = await ask(messages)
    try:
        return parsed(first, count, code)
    except EvaluationError as error:
        problem = error.message
    again = f"Your reply cannot be used: {problem}. Reply again, with the JSON object alone."
    messages = [*messages, {"role": "assistant", "content": first}, {"role": "user", "content": again}]
    try:
        return parsed(await ask(messages), count, code)
    except EvaluationError as error:
        raise EvaluationError(f"the judge gave no valid scores in two replies: {error.message}") from error


class RelativeJudge(GroupEvaluator):
    """Scores attempts against each other by a model. Attempts with the same text get the same score."""

    def __init__(self, config: RelativeJudgeConfig, ask: Ask) -> None:
        super().__init__(config.max_concurrency, "relative_judge")
        self._config = config
        self._ask = ask
        self._known: dict[str, Sequence[AttemptScore]] = {}

    async def evaluate_group(self, items: Sequence[EvalInputItem]) -> Sequence[EvalOutputItem]:
        """The scores of the attempts at one task.

        Raises:
            EvaluationError: there is only one attempt, or the judge gave no valid scores.

        """
        if len(items) == 1:
            raise EvaluationError("relative_judge compares attempts, and this example has only one with an answer")
        transcripts = [transcript(item, self._config.judged) for item in items]
        different = sorted(set(transcripts), key=str)
        judged = await self._judged(shown(items[0].input_obj), different)
        scores = [judged[different.index(each)] for each in transcripts]
        return [
            EvalOutputItem(id=item.id, score=found.score, reasoning=found.why, relative=True)
            for item, found in zip(items, scores, strict=True)
        ]

    async def _judged(self, task: str, attempts: Sequence[Transcript]) -> Sequence[AttemptScore]:
        """Scores of attempts that differ, from the judge or from a call before."""
        if len(attempts) == 1:
            return [AttemptScore(score=TIE, why="all attempts are the same")]
        text = "\0".join([task, *map(str, attempts)])
        key = sha256(text.encode(errors="replace")).hexdigest()
        if key not in self._known:
            self._known[key] = await self._in_calls(task, attempts, Random(f"{self._config.seed} {key}"))
        return self._known[key]

    async def _in_calls(self, task: str, attempts: Sequence[Transcript], rng: Random) -> Sequence[AttemptScore]:
        """Judge in as many calls as it takes; the attempt in the middle of the first call is in all of them."""
        found = dict[int, AttemptScore]()
        lengths = [min(len(str(attempt)), MAX_CHARS // 2) for attempt in attempts]
        rest = rng.sample(range(len(attempts)), len(attempts))
        anchors, room = list[int](), MAX_CHARS
        while rest:
            more = taken(rest, lengths, count=MAX_GROUP - len(anchors), room=room)
            order = rng.sample([*anchors, *more], len(anchors) + len(more))
            judged = await self._in_order(task, [attempts[number] for number in order], rng)
            own = dict(zip(order, judged, strict=True))
            for anchor in anchors:
                own = {n: on_scale(score, anchor=own[anchor], known=found[anchor]) for n, score in own.items()}
            found, rest = own | found, rest[len(more) :]
            if not anchors:
                anchors = [middle(own)]
                room -= lengths[anchors[0]]
        return [found[number] for number in range(len(attempts))]

    async def _in_order(self, task: str, attempts: Sequence[Transcript], rng: Random) -> Sequence[AttemptScore]:
        """Judge the attempts in this order, and a pair in the reversed one, too."""
        forward = await self._in_a_call(task, attempts, rng)
        if len(attempts) != _PAIR:
            return forward
        backward = (await self._in_a_call(task, attempts[::-1], rng))[::-1]
        return [
            AttemptScore(score=(first.score + second.score) / 2, why=first.why)
            for first, second in zip(forward, backward, strict=True)
        ]

    async def _in_a_call(self, task: str, attempts: Sequence[Transcript], rng: Random) -> Sequence[AttemptScore]:
        messages, code = prompt(task, attempts, rubric=self._config.rubric, rng=rng)
        return await ask_for_scores(self._ask, messages, len(attempts), code)


def taken(order: Iterable[int], lengths: Sequence[int], *, count: int, room: int) -> list[int]:
    """The first of `order` that fit into one call: at least one, at most `count`, with `room` characters in all."""
    found: list[int] = []
    for number in order:
        room -= lengths[number]
        if found and (room < 0 or len(found) == count):
            break
        found.append(number)
    return found


def middle(scores: Mapping[int, AttemptScore]) -> int:
    """The attempt in the middle of the ranking."""
    return sorted(scores, key=lambda number: scores[number].score)[len(scores) // 2]


def on_scale(given: AttemptScore, *, anchor: AttemptScore, known: AttemptScore) -> AttemptScore:
    """A score of a call in which the anchor got `anchor`, on the scale of the call in which it got `known`.

    0, the anchor and 1 are mapped to 0, `known` and 1, and linearly between them, so that the order stays.
    """
    score, low, high = given.score, anchor.score, known.score
    if score > low:
        return AttemptScore(score=min(1.0, high + (1 - high) * (score - low) / (1 - low)), why=given.why)
    return AttemptScore(score=high * (score / low) if low else high, why=given.why)


@register_evaluator(config_type=RelativeJudgeConfig)
async def relative_judge(config: RelativeJudgeConfig, builder: EvalBuilder) -> AsyncGenerator[EvaluatorInfo, None]:
    """Build the evaluator; the judge is called through the OpenAI client."""
    ask = ClientAsk(await builder.get_llm(config.llm_name, "openai"))
    description = f"Compared with each other by {config.llm_name}"
    yield EvaluatorInfo(config=config, evaluate_fn=RelativeJudge(config, ask).evaluate, description=description)
