"""The pairs among the candidates of an example. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nat.finetuning.preferences.candidates import CandidateStep, Prompt, messages_of
from nat.finetuning.preferences.config import DPOTrajectoryBuilderConfig
from nat.preferences.pairs import PairRule
from nat.preferences.parting import marked_messages
from nat.preferences.skips import SkipCause, Skipped

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

    def compare(better: int, worse: int) -> PreferencePair | SkipCause:
        return _unlike(ranked[better], ranked[worse]) or _pair(ranked[better], ranked[worse], len(turn))

    rule = PairRule(
        config.min_score_diff, "all" if config.exhaustive_pairs else "best_worst", config.max_pairs_per_turn
    )
    pairs, refused, excluded = rule.choose([candidate.score for candidate in ranked], compare)
    skipped = []
    for better, worse, why in (*refused, *excluded):
        chosen, rejected = ranked[better], ranked[worse]
        cause = _unlike(chosen, rejected) or SkipCause(why)  # equal answers explain equal scores
        both = f"candidates {chosen.candidate_index} and {rejected.candidate_index}"
        scores = f"scores {chosen.score:g} and {rejected.score:g}"
        skipped.append(Skipped(cause, where if cause is SkipCause.TURN_CAP else f"{where}, {both}: {scores}"))
    if config.exhaustive_pairs:
        return pairs, skipped
    return pairs, [] if pairs else skipped[:1]


def _unlike(chosen: CandidateStep, rejected: CandidateStep) -> SkipCause | None:
    """Why two candidates are no answers to compare, whatever their scores; None if they are."""
    one, other = (marked_messages(messages_of(each.prompt), ()) for each in (chosen, rejected))
    if one != other:
        return SkipCause.DIFFERENT_PROMPTS
    return SkipCause.EQUAL_RESPONSES if chosen.response == rejected.response else None


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
