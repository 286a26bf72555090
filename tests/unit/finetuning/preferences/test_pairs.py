import pytest

from nat.data_models.finetuning import DPOItem
from nat.finetuning.preferences.candidates import CandidateStep
from nat.finetuning.preferences.config import DPOTrajectoryBuilderConfig
from nat.finetuning.preferences.pairs import pair_example, pair_turn
from nat.finetuning.preferences.trajectories import trajectory_of
from nat.preferences.skips import SkipCause


def turn(*scores, turn_id="t", responses=()):
    return [
        CandidateStep(
            example_id="e",
            turn_id=turn_id,
            candidate_index=number,
            prompt="p",
            response=responses[number] if responses else f"r{number}",
            score=score,
            raw_metadata={"n": number},
        )
        for number, score in enumerate(scores)
    ]


def paired(candidates, **options):
    """Indices of the pairs, and the causes of the skips."""
    pairs, skipped = pair_turn(candidates, DPOTrajectoryBuilderConfig(**options))
    return [(p.chosen_index, p.rejected_index) for p in pairs], [s.cause for s in skipped]


def test_equal_responses_make_no_pair():
    """A response that is better than itself would cancel in the loss; the best pair without it is taken."""
    twice = turn(1.0, 0.5, 0.0, responses=["a", "b", "a"])
    assert paired(twice) == ([(0, 1), (1, 2)], [SkipCause.EQUAL_RESPONSES])
    assert paired(twice, exhaustive_pairs=False) == ([(0, 1)], [])


def test_a_limit_per_example_takes_from_every_turn():
    """Each turn gives its clearest pair before any gives a second, so that no turn fills the limit alone."""
    turns = [turn(1.0, 0.9, 0.0, turn_id="a"), turn(0.2, 0.1, turn_id="b")]
    pairs, skipped = pair_example(turns, DPOTrajectoryBuilderConfig(max_pairs_per_example=2))
    assert [(p.turn_id, p.chosen_index, p.rejected_index) for p in pairs] == [("a", 0, 2), ("b", 0, 1)]
    assert [s.cause for s in skipped] == [SkipCause.EXAMPLE_CAP] * 2


@pytest.mark.parametrize(("by_difference", "reward"), [(True, 0.75), (False, 1.0)])
def test_a_trajectory_has_the_pair_and_its_facts(by_difference, reward):
    """One DPOItem, with the metadata that the toolkit's users read."""
    [pair], _ = pair_turn(turn(0.25, 1.0), DPOTrajectoryBuilderConfig())
    made = trajectory_of(pair, reward_from_score_diff=by_difference, facts={"run_id": "r"})
    assert made.episode == [DPOItem(prompt="p", chosen_response="r1", rejected_response="r0")]
    assert made.reward == reward
    assert made.metadata == {
        "run_id": "r",
        "id": "e",
        "dpo_type": "preference_pair",
        "score_diff": 0.75,
        "example_id": "e",
        "turn_id": "t",
        "chosen_score": 1.0,
        "rejected_score": 0.25,
        "chosen_index": 1,
        "rejected_index": 0,
        "chosen_raw_metadata": {"n": 1},
        "rejected_raw_metadata": {"n": 0},
        "num_candidates": 2,
    }
