"""The configuration of the builder of preference pairs."""

from pydantic import AliasChoices, Field

from nat.data_models.finetuning import TrajectoryBuilderConfig


class DPOTrajectoryBuilderConfig(TrajectoryBuilderConfig, name="dpo_traj_builder"):
    """Pairs of a better and a worse answer, from the candidates that the workflow pushes as TTC_END steps."""

    gives = "pairs"

    ttc_step_name: str = Field(
        default="dpo_candidate_move", validation_alias=AliasChoices("ttc_step_name", "custom_step_name")
    )
    """Name of the TTC_END steps that are candidates; the toolkit's example calls it `custom_step_name`."""
    exhaustive_pairs: bool = True
    """Pair every two candidates of a turn; false pairs the best with the worst only."""
    min_score_diff: float = Field(default=0.0, ge=0.0)
    """Least difference of the scores of a pair. Equal scores make no pair, not even at 0."""
    max_pairs_per_turn: int | None = Field(default=None, ge=1)
    """Pairs to keep of a turn, those with the largest differences; null keeps all."""
    max_pairs_per_example: int | None = Field(default=None, ge=1)
    """Pairs to keep of an example: the largest difference of each turn, then the second, and so on; null keeps all."""
    reward_from_score_diff: bool = True
    """The reward of a pair is the difference of its scores; with false, the score of the better answer."""
    require_multiple_candidates: bool = True
    """Warn of turns with a single candidate and count them as skipped; set to false where a workflow means them."""

    def rollouts_of(self, num_examples: int) -> int:
        return num_examples
