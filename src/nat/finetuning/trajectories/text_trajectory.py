"""Trajectories that nobody sampled here: texts, to be turned into tokens by the backend that trains them."""

from pydantic import Field

from nat.data_models.finetuning import Trajectory
from nat.wire.texts import Conversation


class TextTrajectory(Trajectory):
    """A conversation that somebody wrote, with the answers to learn from."""

    conversation: Conversation = Field(exclude=True, repr=False)
    desirable: bool | None = Field(default=None, exclude=True)
    """Whether it is one to imitate, if its row says so by itself; else it is compared with others of its group."""

    @property
    def is_preference(self) -> bool:
        return self.desirable is not None


class PairTrajectory(Trajectory):
    """A pair of answers to the same prompt; its episode has the pair as a `DPOItem`, without tool calls."""

    chosen: Conversation = Field(exclude=True, repr=False)
    rejected: Conversation = Field(exclude=True, repr=False)
