"""Conversations of a client → rows of exact tokens.

Each answer that has log probabilities is one call to the model: what was sampled stands in the answer, and the prompt
is the one that was served, if it is still known. Else the messages before the answer are rendered with the chat
template, and counted. All other messages are context, whatever their role.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nat.art.server.served_answers import ServedAnswers
from nat.art.wire import ArtChoice, ArtHistory, ArtTokenLogprob, ArtTrajectory
from nat.backend.messages import template_message, template_tool
from nat.backend.tokenizer import ChatNotRendered, ChatTokenizer
from nat.errors import BatchRefused, ModelNotSupported
from nat.wire.rows import CallTokens, merge
from nat.wire.training import TrainingRow

_TOKEN_ID = "token_id:"  # noqa: S105 - a prefix on the wire


@dataclass(frozen=True)
class TrajectoryRows:
    """What of a trajectory can be trained on."""

    rows: list[TrainingRow]
    answers: int
    """Answers with log probabilities, in all of its conversations."""
    retokenized: int
    """Those of them whose prompt had to be rendered again."""
    untrainable: Counter[str]
    """Answers that were sampled as nothing can be trained on, by how; they are context only."""
    truncated: bool
    """True if some answer stopped at its token limit."""


@dataclass(frozen=True)
class HistoryReader:
    """Reads trajectories for one model."""

    tokenizer: ChatTokenizer
    vocab_size: int
    served: ServedAnswers

    def rows(self, trajectory: ArtTrajectory, *, where: str) -> TrajectoryRows:
        """Merge the calls of all conversations of a trajectory; `where` begins the messages of errors.

        Raises:
            BatchRefused: a token is none of the model's, a log probability is no number, or the template refuses.

        """
        names = [where, *(f"{where}.additional_histories.{n}" for n in range(len(trajectory.additional_histories)))]
        untrainable: Counter[str] = Counter()
        found = [
            call
            for history, name in zip(trajectory.histories, names, strict=True)
            for call in self._calls(history, f"{name}.messages_and_choices", untrainable)
        ]
        return TrajectoryRows(
            rows=merge(call for call, _ in found),
            answers=len(found),
            retokenized=sum(not known for _, known in found),
            truncated=any(_is_truncated(item) for h in trajectory.histories for item in h.messages_and_choices),
            untrainable=untrainable,
        )

    def _calls(self, history: ArtHistory, where: str, untrainable: Counter[str]) -> Iterator[tuple[CallTokens, bool]]:
        """Each answer's tokens, and whether its prompt is the one that was served; counts what cannot be trained on."""
        messages: list[dict[str, Any]] = []
        tools = [template_tool(tool) for tool in history.tools or ()] or None
        for index, item in enumerate(history.messages_and_choices):
            content = sampled_tokens(item) if isinstance(item, ArtChoice) else []
            if content:
                at = f"{where}.{index}"
                sampled = [self._token(token, f"{at}.logprobs.content.{i}") for i, token in enumerate(content)]
                logprobs = [token.logprob for token in content]
                sampling = self.served.sampling_of(sampled, logprobs)
                if sampling.trainable:
                    prompts = self.served.prompts_of(sampled, logprobs)
                    prompt = prompts[0] if len(prompts) == 1 else _nearest(prompts, self._render(messages, tools, at))
                    call = CallTokens("", prompt, sampled, logprobs, temperature=sampling.temperature)
                    yield call, bool(prompts)
                else:
                    untrainable[", ".join(sampling.untrainable_by)] += 1
            message = item.message if isinstance(item, ArtChoice) else item
            if not isinstance(message.get("role"), str):
                raise BatchRefused(f"{where}.{index} is neither an answer nor a message with a role: {_keys(message)}")
            messages.append(message)

    def _token(self, token: ArtTokenLogprob, where: str) -> int:
        if not math.isfinite(token.logprob):
            raise BatchRefused(f"{where}.logprob is {token.logprob}, wanted is a finite number")
        token_id = _id_in(token.token)
        if token_id is None:
            token_id = self.tokenizer.token_id(token.token, token.bytes)
        if token_id is None or not 0 <= token_id < self.vocab_size:
            raise BatchRefused(
                f"{where}.token {token.token!r} is not in the vocabulary of the model ({self.vocab_size} tokens)",
                hint="send the answers that this server gave, as it gave them; their tokens read `token_id:<id>`",
            )
        return token_id

    def _render(self, messages: Sequence[dict[str, Any]], tools: list[dict[str, Any]] | None, where: str) -> list[int]:
        try:
            prompt = self.tokenizer.render_chat([template_message(message) for message in messages], tools=tools)
        except (ChatNotRendered, ModelNotSupported) as error:
            raise BatchRefused(
                f"{where}: the messages before this answer cannot be rendered: {error}",
                hint="send the conversation as the model saw it, with a role in each message",
            ) from error
        if not prompt:
            raise BatchRefused(f"{where}: nothing comes before this answer that it could be predicted from")
        return prompt


def sampled_tokens(choice: ArtChoice) -> list[ArtTokenLogprob]:
    """The tokens of an answer with their log probabilities; none if the client did not ask for them."""
    return (choice.logprobs.content if choice.logprobs is not None else None) or []


def _keys(message: dict[str, Any]) -> str:
    return f"its keys are {', '.join(map(repr, message))}" if message else "it is empty"


def _is_truncated(item: ArtChoice | dict[str, Any]) -> bool:
    return isinstance(item, ArtChoice) and item.finish_reason == "length"


def _id_in(token: str) -> int | None:
    number = token.removeprefix(_TOKEN_ID)
    return int(number) if number != token and number.isascii() and number.isdigit() else None


def _nearest(prompts: Sequence[Sequence[int]], rendered: Sequence[int]) -> Sequence[int]:
    """The served prompt that begins most like the rendered messages; those themselves if none was served."""
    return max(prompts, key=lambda prompt: (_common_prefix(prompt, rendered), -len(prompt)), default=rendered)


def _common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
