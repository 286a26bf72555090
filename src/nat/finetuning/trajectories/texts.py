"""Trajectories of texts that nobody sampled here: demonstrations, answers with a label or reward, and pairs."""

from dataclasses import dataclass

from pydantic import Field

from nat.data_models.finetuning import Trajectory
from nat.wire.texts import Conversation


@dataclass(frozen=True)
class TextRollout:
    """A conversation that somebody wrote, with its reward."""

    reward: float
    conversation: Conversation
    desirable: bool | None = None
    """Whether it is one to imitate, if its row says so by itself; else it is compared with others of its group."""


class TextTrajectory(Trajectory):
    """A text or a pair of them; of a pair, the episode has a `DPOItem`, without tool calls."""

    texts: tuple[TextRollout, ...] = Field(exclude=True, repr=False)
    """One; of a pair the better and the worse one."""

    @property
    def is_preference(self) -> bool:
        return super().is_preference or self.texts[0].desirable is not None
