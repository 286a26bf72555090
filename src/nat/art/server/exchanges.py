"""The calls that clients capture (ART from 0.5.20 on), each as a conversation with one answer. Pure.

A client captures all calls of a rollout, whichever model or server answered. Those to the trained model are trained on,
found by its names; those to a judge, an opponent or the base model are not.
"""

from collections.abc import Iterator, Sequence

from nat.art.server.store import ModelKey, parse
from nat.art.wire import (
    TOKEN_ID,
    ArtCapturedResponse,
    ArtChoice,
    ArtExchanges,
    ArtHistory,
    ArtLogprobs,
    ArtTokenLogprob,
)
from nat.errors import BatchRefused


def captured(exchanges: ArtExchanges, key: ModelKey, where: str) -> Iterator[tuple[str, ArtHistory]]:
    """The answers of the trained model, and the place of each; `where` is that of `exchanges`, for errors.

    Raises:
        BatchRefused: calls were captured, but none to this model; or one of its answers lacks its tokens.

    """
    others, found = set(), False
    for api in ArtExchanges.model_fields:
        for number, exchange in enumerate(getattr(exchanges, api)):
            named = parse(exchange.model)
            if named.name != key.name or named.project not in {None, key.project}:
                others.add(exchange.model)
                continue
            found, place = True, f"{where}.{api}.{number}"
            answers, is_chat = _answers(exchange.response), api == "chat_completions"
            whole = [bool(sampled_tokens(each) and (each.prompt_token_ids or is_chat)) for each in answers]
            if not whole or not all(whole):
                raise BatchRefused(
                    f"{place}: the response lacks the tokens of its prompt, the sampled ones, or their logprobs",
                    hint="call the model by chat or text completions of this server, whose answers have their tokens; "
                    "art.no_capture() is for calls that belong to no rollout",
                )
            before = exchange.request.messages if is_chat else []
            for answer in answers:
                yield place, ArtHistory(messages_and_choices=[*before, answer], tools=exchange.request.tools)
    if others and not found:
        raise BatchRefused(
            f"{where}: no call went to the trained model, {key.name}, but to {', '.join(sorted(others))}",
            hint="sample by `model.openai_client()` and `model.get_inference_name()`",
        )


def _answers(response: ArtCapturedResponse) -> list[ArtChoice]:
    """The choices of chat and text completions, the generations of the Responses API, or the one message."""
    prompt, found = response.prompt_token_ids, list[ArtChoice]()
    for choice in response.choices:
        given = choice.logprobs or ArtLogprobs()
        content = given.content or _paired(choice.token_ids, given.token_logprobs)
        own = {"prompt_token_ids": choice.prompt_token_ids or prompt, "logprobs": ArtLogprobs(content=content)}
        found.append(choice.model_copy(update=own))
    generations = [(each.prompt_token_ids, each.output_tokens) for each in response.token_generations]
    if response.token_ids:
        generations.append((prompt, _paired(response.token_ids, response.logprobs)))
    return found + [ArtChoice(prompt_token_ids=p, logprobs=ArtLogprobs(content=tokens)) for p, tokens in generations]


def sampled_tokens(choice: ArtChoice) -> list[ArtTokenLogprob]:
    """The tokens of an answer with their log probabilities; empty if it has none."""
    return (choice.logprobs.content if choice.logprobs is not None else None) or []


def _paired(token_ids: Sequence[int], logprobs: Sequence[float]) -> list[ArtTokenLogprob]:
    """Nothing unless each token has its log probability."""
    if len(token_ids) != len(logprobs):
        return []
    return [ArtTokenLogprob(token=f"{TOKEN_ID}{t}", logprob=p) for t, p in zip(token_ids, logprobs, strict=True)]
