"""Turns a client's trajectories into rows of exact tokens.

Each answer with log probabilities is one call to the model: the answer has the sampled tokens, and the prompt is the
one that was served, if the client sends it or it is still known. If not, the messages before the answer are rendered
with the chat template, and the answer is counted as retokenized. All other messages are context, whatever their role.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from nat.art.server.exchanges import captured, sampled_tokens
from nat.art.server.served_answers import ServedAnswers
from nat.art.server.store import ModelKey
from nat.art.wire import TOKEN_ID, ArtChoice, ArtHistory, ArtTrajectory
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
    key: ModelKey
    """The trained model."""

    def rows(self, trajectory: ArtTrajectory, *, where: str) -> TrajectoryRows:
        """Merge the calls of all conversations of a trajectory; `where` is its place in the request, for errors.

        Raises:
            BatchRefused: a token is not in the vocabulary, the template fails, or a captured call cannot be read.

        """
        names = [where, *(f"{where}.additional_histories.{n}" for n in range(len(trajectory.additional_histories)))]
        places = [f"{name}.messages_and_choices" for name in names]
        histories = [*zip(places, trajectory.histories, strict=True)]
        histories += captured(trajectory.exchanges, self.key, f"{where}.exchanges")
        untrainable: Counter[str] = Counter()
        found = [call for place, history in histories for call in self._calls(history, place, untrainable)]
        return TrajectoryRows(
            rows=merge(call for call, _ in found),
            answers=len(found),
            retokenized=sum(not known for _, known in found),
            truncated=any(
                isinstance(item, ArtChoice) and item.finish_reason == "length"
                for _, history in histories
                for item in history.messages_and_choices
            ),
            untrainable=untrainable,
        )

    def _calls(self, history: ArtHistory, where: str, untrainable: Counter[str]) -> Iterator[tuple[CallTokens, bool]]:
        """Each answer's tokens, and whether its prompt is the one that was served; counts untrainable answers."""
        messages: list[dict[str, Any]] = []
        tools = [template_tool(tool) for tool in history.tools or ()] or None
        for index, item in enumerate(history.messages_and_choices):
            if isinstance(item, ArtChoice) and (content := sampled_tokens(item)):
                at = f"{where}.{index}"
                sampled = [self._token(t.token, f"{at}.logprobs.content.{i}.token") for i, t in enumerate(content)]
                logprobs = [token.logprob for token in content]
                sampling = self.served.sampling_of(sampled, logprobs)
                if sampling.trainable:
                    sent = [self._token(f"{TOKEN_ID}{t}", f"{at}.prompt_token_ids") for t in item.prompt_token_ids]
                    prompts = [sent] if sent else self.served.prompts_of(sampled, logprobs)
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

    def _token(self, token: str, where: str) -> int:
        number = token.removeprefix(TOKEN_ID)
        named = number != token and number.isascii() and number.isdigit()
        if not named or (token_id := int(number)) >= self.vocab_size:
            raise BatchRefused(
                f"{where} {token!r} is not in the vocabulary of the model ({self.vocab_size} tokens)",
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


def _nearest(prompts: Sequence[Sequence[int]], rendered: Sequence[int]) -> Sequence[int]:
    """The served prompt with the longest common prefix with the rendered messages; these if none was served."""

    def in_common(prompt: Sequence[int]) -> int:
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(prompt, rendered, strict=False)))

    return max(prompts, key=lambda prompt: (in_common(prompt), -len(prompt)), default=rendered)
