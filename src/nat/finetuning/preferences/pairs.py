"""Pairs of a better and a worse answer to the same prompt, and their trajectories. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from nat.data_models.finetuning import DPOItem, Trajectory
from nat.finetuning.preferences.candidates import CandidateStep, Prompt
from nat.finetuning.preferences.config import DPOTrajectoryBuilderConfig
from nat.finetuning.preferences.skips import SkipCause, Skipped
from nat.wire import rewards

_PAIR = 2


@dataclass(frozen=True)
class PreferencePair:
    """Two answers to one prompt; the first has the higher score."""

    example_id: str
    turn_id: str
    prompt: Prompt
    chosen_response: str
    rejected_response: str
    chosen_score: float
    rejected_score: float
    score_diff: float
    chosen_index: int
    rejected_index: int
    metadata: dict[str, Any] = field(default_factory=dict)
    """Metadata of both steps, and the number of candidates of the turn."""


Turn = Sequence[CandidateStep]


def turns_of(candidates: Iterable[CandidateStep]) -> list[list[CandidateStep]]:
    """The candidates by example and turn, in the order in which they were pushed."""
    turns: dict[tuple[str, str], list[CandidateStep]] = {}
    for candidate in candidates:
        turns.setdefault((candidate.example_id, candidate.turn_id), []).append(candidate)
    return list(turns.values())


def pair_example(
    turns: Sequence[Turn], config: DPOTrajectoryBuilderConfig
) -> tuple[list[PreferencePair], list[Skipped]]:
    """The pairs of all turns of one example, within its limit."""
    by_turn, skipped = [], []
    for turn in turns:
        pairs, left_out = pair_turn(turn, config)
        by_turn.append(pairs)
        skipped += left_out
    # The first pair of a turn has its largest difference; each turn gives one before any gives a second.
    ranked = sorted(((rank, number) for number, pairs in enumerate(by_turn) for rank, _ in enumerate(pairs)))
    beyond = set(ranked[config.max_pairs_per_example :]) if config.max_pairs_per_example is not None else set()
    kept = [p for number, pairs in enumerate(by_turn) for rank, p in enumerate(pairs) if (rank, number) not in beyond]
    skipped += [Skipped(SkipCause.EXAMPLE_CAP, f"example {turns[0][0].example_id}") for _ in beyond]
    return kept, skipped


def pair_turn(turn: Turn, config: DPOTrajectoryBuilderConfig) -> tuple[list[PreferencePair], list[Skipped]]:
    """The pairs of one turn, the largest difference first, candidates of equal scores in the order of their steps.

    Unless all are wanted, the pair of the largest difference; a turn without one counts its best and worst as skipped.
    """
    where = f"example {turn[0].example_id}, turn {turn[0].turn_id}"
    if len(turn) < _PAIR:
        return [], [Skipped(SkipCause.SINGLE_CANDIDATE, where)]
    ranked = sorted(turn, key=lambda candidate: -candidate.score)
    compared = sorted(combinations(ranked, _PAIR), key=lambda two: two[1].score - two[0].score)
    pairs, skipped = [], []
    for chosen, rejected in compared:
        cause = _no_preference(chosen, rejected, config.min_score_diff)
        if cause is None:
            pairs.append(_pair(chosen, rejected, len(turn)))
        else:
            both = f"candidates {chosen.candidate_index} and {rejected.candidate_index}"
            scores = f"scores {chosen.score:g} and {rejected.score:g}"
            skipped.append(Skipped(cause, f"{where}, {both}: {scores}"))
    if not config.exhaustive_pairs:
        return pairs[:1], [] if pairs else skipped[:1]
    kept = pairs[: config.max_pairs_per_turn]
    return kept, skipped + [Skipped(SkipCause.TURN_CAP, where)] * (len(pairs) - len(kept))


def _no_preference(chosen: CandidateStep, rejected: CandidateStep, least: float) -> SkipCause | None:
    """Why two candidates are no pair; None if they are one."""
    if chosen.prompt != rejected.prompt:
        return SkipCause.DIFFERENT_PROMPTS
    if chosen.response == rejected.response:
        return SkipCause.EQUAL_RESPONSES
    scores = [chosen.score, rejected.score]
    if rewards.equal(scores):
        return SkipCause.TIE
    if chosen.score - rejected.score < least - rewards.rounding(scores):
        return SkipCause.SCORE_DIFF
    return None


def _pair(chosen: CandidateStep, rejected: CandidateStep, num_candidates: int) -> PreferencePair:
    return PreferencePair(
        example_id=chosen.example_id,
        turn_id=chosen.turn_id,
        prompt=chosen.prompt,
        chosen_response=chosen.response,
        rejected_response=rejected.response,
        chosen_score=chosen.score,
        rejected_score=rejected.score,
        score_diff=chosen.score - rejected.score,
        chosen_index=chosen.candidate_index,
        rejected_index=rejected.candidate_index,
        metadata={
            "chosen_raw_metadata": chosen.raw_metadata,
            "rejected_raw_metadata": rejected.raw_metadata,
            "num_candidates": num_candidates,
        },
    )


def trajectory_of(pair: PreferencePair, *, reward_from_score_diff: bool, facts: dict[str, Any]) -> Trajectory:
    """A trajectory with one DPOItem; `facts` (run id, epoch) are added to its metadata."""
    return Trajectory(
        episode=[
            DPOItem(prompt=pair.prompt, chosen_response=pair.chosen_response, rejected_response=pair.rejected_response)
        ],
        reward=pair.score_diff if reward_from_score_diff else pair.chosen_score,
        metadata=facts
        | {
            "id": pair.example_id,
            "dpo_type": "preference_pair",
            "score_diff": pair.score_diff,
            "example_id": pair.example_id,
            "turn_id": pair.turn_id,
            "chosen_score": pair.chosen_score,
            "rejected_score": pair.rejected_score,
            "chosen_index": pair.chosen_index,
            "rejected_index": pair.rejected_index,
            **pair.metadata,
        },
    )
