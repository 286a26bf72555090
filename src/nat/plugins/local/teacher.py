"""A teacher: another model's server, asked for the log probability of every token that the student sampled.

The server is vLLM or the embedded backend: `prompt_logprobs` of /v1/completions, and /detokenize, which shows whether
both models have the same tokens.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Self, TypeVar

from openai import APIConnectionError, APIStatusError, AsyncOpenAI
from pydantic import BaseModel, ValidationError

from nat.capture.http import CapturingAsyncClient
from nat.data_models.llm_usage import LLMUsage
from nat.errors import BackendError, BackendUnreachable, ConfigError, describe_error, findings_of, first_error
from nat.plugins.llms.client import connection
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.secrets import excerpt
from nat.wire.numbers import Logprob
from nat.wire.training import TrainingGroup, TrainingRollout, TrainingRow, rows_of

AT_ONCE = 16
"""Requests to the teacher at the same time."""
IDS_AT_ONCE = 4096
"""Token ids whose texts are compared in a request."""
BEYOND = 1024
"""Ids after the student's last one that the teacher must not have."""
SHOWN = 5
"""Different tokens that an error lists."""
_SHOWN_CHARS = 300
_SERVE = "serve the teacher with vLLM or with `nat backend serve`, which give `prompt_logprobs`"

M = TypeVar("M", bound=BaseModel)
Detokenize = Callable[[Sequence[int]], Awaitable[str]]
"""Gives the text of token ids, special tokens included."""


class _Score(BaseModel):
    logprob: Logprob


class _ScoredChoice(BaseModel):
    prompt_logprobs: list[dict[int, _Score] | None] | None = None


class _Completion(BaseModel):
    choices: list[_ScoredChoice]


class _TeacherCard(BaseModel):
    id: str
    max_model_len: int | None = None


class _TeacherCards(BaseModel):
    data: list[_TeacherCard]


class _Text(BaseModel):
    prompt: str


@dataclass(frozen=True)
class Scored:
    """Groups with the teacher's log probabilities, and what it took."""

    groups: list[TrainingGroup]
    metrics: dict[str, float]
    usage: dict[str, LLMUsage]
    """Its calls and tokens, under its key."""


class Teacher:
    """The server of one teacher; the client retries."""

    def __init__(self, config: OpenAIModelConfig, *, llm_name: str) -> None:
        self._name, self._path = llm_name, f"llms.{llm_name}"
        self._model = config.model_name
        http = CapturingAsyncClient(None, verify=config.verify_ssl)
        self._client = AsyncOpenAI(**connection(config, llm_name=llm_name), http_client=http)
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._context: int | None = None
        """Most tokens of a prompt and an answer; None if the server does not tell."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def check(self, detokenize: Detokenize, vocabulary: int) -> None:
        """Check that the server scores prompts, and that its tokens are the student's.

        Args:
            detokenize: Of the student.
            vocabulary: The student's highest id, plus 1.

        Raises:
            ConfigError: the tokens differ, with the first of those that do.
            BackendError: the server refuses, or does not answer.

        """
        cards = await self._ask(_TeacherCards, self._client, "/models")
        self._context = next((card.max_model_len for card in cards.data if card.id == self._model), None)
        await self._compare(detokenize, vocabulary)
        await self._logprobs([0, 0])

    async def scored(self, groups: Sequence[TrainingGroup]) -> Scored:
        """Add the teacher's log probabilities to the rows of all groups; one request for each row.

        Raises:
            ConfigError: a row is longer than the teacher's context.
            BackendError: the server refuses, or does not answer.

        """
        began = time.monotonic()
        rows = rows_of(groups)
        async with first_error(), asyncio.TaskGroup() as tasks:  # one says what is wrong with all
            asked = [tasks.create_task(self._row(row)) for row in rows]
        scored = [task.result() for task in asked]
        tokens = sum(len(row.token_ids) for row in rows)
        rest = iter(scored)

        def with_scores(rollout: TrainingRollout) -> TrainingRollout:
            return rollout.model_copy(update={"rows": list(islice(rest, len(rollout.rows)))})

        return Scored(
            [group.model_copy(update={"rollouts": list(map(with_scores, group.rollouts))}) for group in groups],
            {
                "teacher_calls": float(len(rows)),
                "teacher_tokens": float(tokens),
                "teacher_seconds": time.monotonic() - began,
                "teacher_unscored": float(sum(map(_unscored, scored))),
            },
            {self._name: LLMUsage(calls=len(rows), prompt_tokens=tokens, completion_tokens=len(rows))},
        )

    async def _row(self, row: TrainingRow) -> TrainingRow:
        ids = row.token_ids
        if self._context is not None and len(ids) > self._context:
            raise ConfigError(
                [f"{self._path}: its context has {self._context} tokens; a rollout has a row of {len(ids)}"],
                hint="serve the teacher with a longer context, or lower max_tokens or max_seq_length of the student",
            )
        # One token is sampled after a prompt, so the last token of a full context cannot be scored.
        asked = ids[: self._context - 1] if self._context is not None else ids
        async with self._at_once:
            found = await self._logprobs(asked)
        found += [None] * (len(ids) - len(asked))
        spans = [span.model_copy(update={"teacher_logprobs": found[span.start : span.stop]}) for span in row.spans]
        return row.model_copy(update={"spans": spans})

    async def _logprobs(self, token_ids: list[int]) -> list[float | None]:
        """The log probability of each token after those before it; None for the first."""
        body = {
            "model": self._model,
            "prompt": token_ids,
            "max_tokens": 1,
            "temperature": 1.0,
            "prompt_logprobs": 0,
        }
        answer = await self._ask(_Completion, self._client, "/completions", body)
        entries = answer.choices[0].prompt_logprobs if answer.choices else None
        if entries is None or len(entries) != len(token_ids):
            seen = "no prompt_logprobs" if entries is None else f"{len(entries)} prompt_logprobs"
            raise BackendError(f"{self._path}: the answer has {seen} for {len(token_ids)} tokens", hint=_SERVE)
        own = [(entry or {}).get(token) for token, entry in zip(token_ids, entries, strict=True)]
        if None in own[1:]:
            raise BackendError(
                f"{self._path}: prompt_logprobs leave out the token at {own.index(None, 1)} of a prompt", hint=_SERVE
            )
        return [None if score is None else score.logprob for score in own]

    async def _compare(self, detokenize: Detokenize, vocabulary: int) -> None:
        """Raise ConfigError unless each id of the student has the same text, and the teacher has no others."""
        different: list[int] = []
        for start in range(0, vocabulary, IDS_AT_ONCE):
            part = range(start, min(start + IDS_AT_ONCE, vocabulary))
            different += await self._different(detokenize, part, SHOWN - len(different))
            if len(different) >= SHOWN:
                break
        if different:
            texts = [(at, await detokenize([at]), await self._detokenize([at])) for at in different]
            listed = "; ".join(
                f"{at} is {mine!r} for the student and {its!r} for the teacher" for at, mine, its in texts
            )
            raise self._other_tokens(f"the first ids that differ: {listed}")
        if beyond := await self._detokenize(range(vocabulary, vocabulary + BEYOND)):
            shown = excerpt(repr(beyond), 80)
            raise self._other_tokens(f"the student has {vocabulary} ids, and the teacher more, which are {shown}")

    async def _different(self, detokenize: Detokenize, ids: range, most: int) -> list[int]:
        """The first ids, at most so many, whose texts differ, found by halves."""
        if not ids or most <= 0:
            return []
        # With the first id between them, "ab" and "c" are not "a" and "bc".
        apart = [each for token in ids for each in (token, 0)]
        mine, its = await asyncio.gather(detokenize(apart), self._detokenize(apart))
        if mine == its:
            return []
        if len(ids) == 1:
            return [ids[0]]
        half = len(ids) // 2
        found = await self._different(detokenize, ids[:half], most)
        return found + await self._different(detokenize, ids[half:], most - len(found))

    async def _detokenize(self, token_ids: Sequence[int]) -> str:
        root = self._client.with_options(base_url=str(self._client.base_url).rstrip("/").removesuffix("/v1"))
        body = {"model": self._model, "tokens": list(token_ids)}
        return (await self._ask(_Text, root, "/detokenize", body)).prompt

    async def _ask(self, kind: type[M], client: AsyncOpenAI, path: str, body: object = None) -> M:
        """The answer to a request, a GET if there is no body."""
        try:
            if body is None:
                answer = await client.get(path, cast_to=object)
            else:
                answer = await client.post(path, cast_to=object, body=body)
        except APIConnectionError as error:
            raise BackendUnreachable(
                f"{self._path}: the teacher's server at {client.base_url} does not answer {path}: "
                f"{describe_error(error.__cause__ or error)}",
                hint="start it, or correct base_url; a slow one may need a longer `timeout`",
            ) from error
        except APIStatusError as error:
            raise BackendError(
                f"{self._path}: the teacher's server answered {path} with {error.status_code}: "
                f"{excerpt(error.response.text, _SHOWN_CHARS)}",
                hint=_SERVE,
            ) from error
        try:
            return kind.model_validate(answer)
        except ValidationError as error:
            raise BackendError(
                f"{self._path}: the answer to {path} has an unknown form ({findings_of(error)[0]}): "
                f"{excerpt(repr(answer), _SHOWN_CHARS)}",
                hint=_SERVE,
            ) from error

    def _other_tokens(self, seen: str) -> ConfigError:
        return ConfigError(
            [f"{self._path}: the teacher has another vocabulary than the student; {seen}"],
            hint="choose a teacher of the student's model family, whose tokenizer is the same",
        )


def _unscored(row: TrainingRow) -> int:
    return sum(logprob is None for span in row.spans for logprob in span.teacher_logprobs or ())
