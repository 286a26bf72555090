"""The configuration of the builder of preference pairs."""

import logging
from typing import Any

from pydantic import Field, model_validator

from nat.data_models.finetuning import TrajectoryBuilderConfig

logger = logging.getLogger(__name__)

_FORMER_NAME = "custom_step_name"
_NAME = "ttc_step_name"


class DPOTrajectoryBuilderConfig(TrajectoryBuilderConfig, name="dpo_traj_builder"):
    """Pairs of a better and a worse answer, from the candidates that the workflow pushes as TTC_END steps."""

    gives = "pairs"

    ttc_step_name: str = "dpo_candidate_move"
    """Name of the TTC_END steps that are candidates."""
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

    @model_validator(mode="before")
    @classmethod
    def _former_name(cls, data: Any) -> Any:
        """Read the former name of `ttc_step_name`, which examples of the toolkit still have."""
        if not isinstance(data, dict) or _FORMER_NAME not in data:
            return data
        rest = {key: value for key, value in data.items() if key != _FORMER_NAME}
        if rest.get(_NAME, data[_FORMER_NAME]) != data[_FORMER_NAME]:
            raise ValueError(
                f"{_FORMER_NAME} is the former name of {_NAME}, and the two differ: {data[_FORMER_NAME]!r} and "
                f"{rest[_NAME]!r}; remove {_FORMER_NAME}"
            )
        logger.warning("%s is the former name of %s and is read as that; rename it", _FORMER_NAME, _NAME)
        return {**rest, _NAME: data[_FORMER_NAME]}
