"""Turns our trajectories into ART's. Pure.

An answer that the trained model sampled becomes a choice with the ids and log probabilities of its tokens. Everything
else (tool messages, few-shot answers, answers of another model) stays a message of its role and is never trained on.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby, pairwise
from typing import Any

from pydantic import BaseModel

from nat.art.wire import (
    TOKEN_ID,
    ArtChoice,
    ArtHistory,
    ArtLogprobs,
    ArtTokenLogprob,
    ArtTrajectory,
    ArtTrajectoryGroup,
)
from nat.data_models.finetuning import EpisodeItem, EpisodeItemRole, Trajectory, TrajectoryCollection
from nat.errors import InvalidTrajectories
from nat.finetuning.trajectories.calls import token_logprobs
from nat.finetuning.trajectories.rows import check_no_preferences
from nat.wire.numbers import is_logprob

Message = dict[str, Any]

_KEPT = ("tool_calls", "tool_call_id", "function_call", "name")
_FINISHED = {"stop", "length", "tool_calls", "content_filter", "function_call"}
"""The finish reasons that ART's servers accept in a choice."""
_FACTS = ("id", "generation", "epoch", "run_id")
_HINT = "look at the rollout in the run's `trajectories` folder; each request of the agent must continue its chat"


def art_trajectory(trajectory: Trajectory, *, trained: Collection[str] | None = None) -> ArtTrajectory | None:
    """One rollout; None if it has no answer of the trained model whose tokens are known.

    `trained` are the names under which the trained model's calls are recorded; None takes every sampled answer.

    Raises:
        InvalidTrajectories: a conversation is empty, begins with an answer, or has two answers in a row; or the
            trajectory has shaped rewards.

    """
    if trajectory.shaped_rewards is not None:
        raise InvalidTrajectories(
            f"a trajectory has shaped_rewards, but ART takes one reward for it{_where(trajectory)}",
            hint="leave `shaped_rewards` out, or train with `local_trainer_adapter`, which compares answer by answer",
        )
    conversations = list(_conversations(trajectory))
    for items in conversations:
        _check(items, trajectory)
    histories = [history for items in conversations for history in _histories(items, trained)]
    if not histories:
        return None
    first, *more = histories
    facts = trajectory.metadata or {}
    fields: dict[str, Any] = {"tools": first.tools} if first.tools else {}
    if more:
        fields["additional_histories"] = more
    return ArtTrajectory(
        messages_and_choices=first.messages_and_choices,
        reward=trajectory.reward,
        metadata={name: value for name in _FACTS if isinstance(value := facts.get(name), str | int | float)},
        **fields,
    )


def art_groups(
    collection: TrajectoryCollection, *, trained: Collection[str] | None = None
) -> tuple[list[ArtTrajectoryGroup], list[str]]:
    """The groups to train on, and for each trajectory that is left out, the reason.

    Raises:
        InvalidTrajectories: a trajectory is not a conversation, or a preference pair, or none can be trained on.

    """
    check_no_preferences(collection)
    groups, left_out = [], []
    for trajectories in collection.trajectories:
        converted = []
        for trajectory in trajectories:
            try:
                found = art_trajectory(trajectory, trained=trained)
            except InvalidTrajectories:
                raise
            except ValueError as error:
                left_out.append(f"{error}{_where(trajectory)}")
                continue
            if found is None:
                left_out.append(f"no answer of the trained model has the tokens that were sampled{_where(trajectory)}")
            else:
                converted.append(found)
        if converted:
            groups.append(ArtTrajectoryGroup(trajectories=converted))
    if not groups:
        raise InvalidTrajectories(
            f"No valid trajectory groups to submit. {len(left_out)} trajectories were left out"
            + (f"; the first because {left_out[0]}" if left_out else ""),
            hint="the inference server must answer with `logprobs` (ART's and ours always do), and the workflow must "
            "call the trained LLM",
        )
    return groups, left_out


def _conversations(trajectory: Trajectory) -> Iterable[list[EpisodeItem]]:
    items = [item for item in trajectory.episode if isinstance(item, EpisodeItem)]
    if not items:
        raise _invalid("Trajectory episode is empty.", trajectory)
    for _, conversation in groupby(items, key=lambda item: (item.metadata or {}).get("conversation", 0)):
        yield list(conversation)


def _check(items: Sequence[EpisodeItem], trajectory: Trajectory) -> None:
    if items[0].role not in {EpisodeItemRole.USER, EpisodeItemRole.SYSTEM}:
        text = "The first message in the trajectory must be from 'user' or 'system'."
        raise _invalid(f"{text} It is from '{items[0].role}'.", trajectory)
    for position, (one, other) in enumerate(pairwise(items)):
        if one.role == other.role == EpisodeItemRole.ASSISTANT:
            text = "Consecutive assistant messages are not allowed in a trajectory."
            raise _invalid(f"{text} These are messages {position + 1} and {position + 2}.", trajectory)


def _invalid(text: str, trajectory: Trajectory) -> InvalidTrajectories:
    return InvalidTrajectories(f"{text}{_where(trajectory)}", hint=_HINT)


def _where(trajectory: Trajectory) -> str:
    facts = trajectory.metadata or {}
    return f" (example {facts['id']}, generation {facts.get('generation', 0)})" if "id" in facts else ""


def _histories(items: Sequence[EpisodeItem], trained: Collection[str] | None) -> list[ArtHistory]:
    """The conversation, once for each set of tools that its answers were sampled with; empty without a choice."""
    choices = {at: choice for at, item in enumerate(items) if (choice := _choice(item, trained)) is not None}
    tools_of = {at: (items[at].metadata or {}).get("tools") for at in choices}
    sets: list[Any] = []
    for tools in tools_of.values():
        if tools not in sets:
            sets.append(tools)
    histories = []
    for tools in sets:
        own = {at: choice for at, choice in choices.items() if tools_of[at] == tools}
        messages = [own.get(at) or _message(item) for at, item in enumerate(items[: max(own) + 1])]
        histories.append(ArtHistory(messages_and_choices=messages, **({"tools": tools} if tools else {})))
    return histories


def _choice(item: EpisodeItem, trained: Collection[str] | None) -> ArtChoice | None:
    """The answer as the API gave it; None if the trained model did not sample it, or its tokens are not known."""
    facts = item.metadata or {}
    foreign = trained is not None and "model" in facts and facts["model"] not in trained
    if item.role is not EpisodeItemRole.ASSISTANT or not item.sampled or foreign:
        return None
    tokens = _tokens(item.logprobs, facts.get("token_ids"))
    if not tokens:
        return None
    reason = facts.get("finish_reason")
    return ArtChoice(
        message=_message(item),
        finish_reason=reason if reason in _FINISHED else "stop",
        index=0,
        logprobs=ArtLogprobs(content=tokens),
    )


def _tokens(logprobs: Any, token_ids: Sequence[int] | None) -> list[ArtTokenLogprob] | None:
    """The sampled tokens by id if the server sent ids, else by text; None if it sent neither."""
    if isinstance(logprobs, BaseModel):
        logprobs = logprobs.model_dump()
    numbers = token_logprobs(logprobs)
    if numbers is None or not all(map(is_logprob, numbers)):
        return None
    entries = logprobs["content"] if isinstance(logprobs, dict) else [{} for _ in numbers]
    if token_ids is not None and len(token_ids) == len(numbers):
        names = [f"{TOKEN_ID}{token}" for token in token_ids]
    elif all("token" in entry for entry in entries):
        names = [str(entry["token"]) for entry in entries]
    else:
        return None
    return [
        ArtTokenLogprob(
            token=name,
            logprob=number,
            top_logprobs=[],
            **({"bytes": entry["bytes"]} if entry.get("bytes") is not None else {}),
        )
        for name, number, entry in zip(names, numbers, entries, strict=True)
    ]


def _message(item: EpisodeItem) -> Message:
    """The message in OpenAI's shape, without empty fields."""
    facts = item.metadata or {}
    content = facts.get("content") or item.content
    kept = {name: facts[name] for name in _KEPT if facts.get(name)}
    calls_alone = not content and not kept.keys().isdisjoint({"tool_calls", "function_call"})
    text = {} if calls_alone else {"content": content}
    of_user = item.role in {EpisodeItemRole.ENVIRONMENT, EpisodeItemRole.OTHER}  # chat templates know no such role
    return {"role": "user" if of_user else str(item.role), **text, **kept}
