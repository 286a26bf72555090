import pytest

from nat.data_models.finetuning import DPOItem
from nat.finetuning.preferences.builder import trajectory_of
from nat.finetuning.preferences.candidates import CandidateStep, pair_turn
from nat.preferences.pairs import PairRule, SkipCause


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
    pairs, skipped = pair_turn(candidates, PairRule(**options))
    return [(p.chosen_index, p.rejected_index) for p in pairs], [s.cause for s in skipped]


def test_equal_responses_make_no_pair():
    """A response that is better than itself would cancel in the loss; the best pair without it is taken."""
    twice = turn(1.0, 0.5, 0.0, responses=["a", "b", "a"])
    assert paired(twice) == ([(0, 1), (1, 2)], [SkipCause.EQUAL_RESPONSES])
    assert paired(twice, which="best_worst") == ([(0, 1)], [])


@pytest.mark.parametrize(("by_difference", "reward"), [(True, 0.75), (False, 1.0)])
def test_a_trajectory_has_the_pair_and_its_facts(by_difference, reward):
    """One DPOItem, with the metadata that the toolkit's users read."""
    [pair], _ = pair_turn(turn(0.25, 1.0), PairRule())
    made = trajectory_of(pair, {"run_id": "r"}, by_diff=by_difference)
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
