"""Turns a client's trajectories into rows of exact tokens.

Each answer with log probabilities is one call to the model: the answer has the sampled tokens, and the prompt is the
one that was served, if it is still known. If not, the messages before the answer are rendered with the chat template,
and the answer is counted as retokenized. All other messages are context, whatever their role.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from nat.art.server.served_answers import ServedAnswers
from nat.art.wire import TOKEN_ID, ArtChoice, ArtHistory, ArtTokenLogprob, ArtTrajectory
from nat.backend.tokenizer import ChatNotRendered, ChatTokenizer, template_message, template_tool
from nat.errors import BatchRefused, ModelNotSupported
from nat.wire.rows import CallTokens, merge
from nat.wire.training import TrainingRow


@dataclass(frozen=True)
class TrajectoryRows:
    """The trainable rows of a trajectory."""

    rows: list[TrainingRow]
    answers: int
    """Answers with log probabilities, in all of its conversations."""
    retokenized: int
    """Those whose prompt had to be rendered again."""
    untrainable: Counter[str]
    """Number of answers that cannot be trained on, by how they were sampled; they are context only."""
    truncated: bool
    """True if some answer stopped at its token limit."""


@dataclass(frozen=True)
class HistoryReader:
    """Reads trajectories for one model."""

    tokenizer: ChatTokenizer
    vocab_size: int
    served: ServedAnswers

    def rows(self, trajectory: ArtTrajectory, *, where: str) -> TrajectoryRows:
        """Merge the calls of all conversations of a trajectory; `where` is its place in the request, for errors.

        Raises:
            BatchRefused: a token is not in the vocabulary, or the template fails.

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
            truncated=any(
                isinstance(item, ArtChoice) and item.finish_reason == "length"
                for history in trajectory.histories
                for item in history.messages_and_choices
            ),
            untrainable=untrainable,
        )

    def _calls(self, history: ArtHistory, where: str, untrainable: Counter[str]) -> Iterator[tuple[CallTokens, bool]]:
        """Each answer's tokens, and whether its prompt is the one that was served; counts untrainable answers."""
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
                keys = f"its keys are {', '.join(map(repr, message))}" if message else "it is empty"
                raise BatchRefused(f"{where}.{index} is neither an answer nor a message with a role: {keys}")
            messages.append(message)

    def _token(self, token: ArtTokenLogprob, where: str) -> int:
        number = token.token.removeprefix(TOKEN_ID)
        if number != token.token and number.isascii() and number.isdigit():
            token_id: int | None = int(number)
        else:
            token_id = self.tokenizer.token_id(token.token, token.bytes)
        if token_id is None or not 0 <= token_id < self.vocab_size:
            raise BatchRefused(
                f"{where}.token {token.token!r} is not in the vocabulary of the model ({self.vocab_size} tokens)",
                hint="send the answers of this server unchanged; their tokens read `token_id:<id>`",
            )
        return token_id

    def _render(self, messages: Sequence[dict[str, Any]], tools: list[dict[str, Any]] | None, where: str) -> list[int]:
        try:
            prompt = self.tokenizer.render_chat([template_message(message) for message in messages], tools=tools)
        except (ChatNotRendered, ModelNotSupported) as error:
            raise BatchRefused(
                f"{where}: the messages before this answer cannot be rendered: {error}",
                hint="send the conversation as the model got it, with a role in each message",
            ) from error
        if not prompt:
            raise BatchRefused(f"{where}: no message comes before this answer, so it has no prompt")
        return prompt


def sampled_tokens(choice: ArtChoice) -> list[ArtTokenLogprob]:
    """The tokens of an answer with their log probabilities; empty if it has none."""
    return (choice.logprobs.content if choice.logprobs is not None else None) or []


def _nearest(prompts: Sequence[Sequence[int]], rendered: Sequence[int]) -> Sequence[int]:
    """The served prompt with the longest common prefix with the rendered messages; these if none was served."""

    def in_common(prompt: Sequence[int]) -> int:
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(prompt, rendered, strict=False)))

    return max(prompts, key=lambda prompt: (in_common(prompt), -len(prompt)), default=rendered)
