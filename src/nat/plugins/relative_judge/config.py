"""The options of the judge."""

from typing import Literal

from pydantic import Field, field_validator

from nat.data_models.component_ref import LLMRef
from nat.data_models.evaluator import EvaluatorBaseConfig

DEFAULT_RUBRIC = """\
- Whether the task was done counts most: an attempt that did what was asked is far above one that did not.
- Among attempts that did it, the more direct one is better: no needless steps, no errors on the way, no padding.
- Among attempts that did not, the one that came closer is better.
- A claim is worth only what the attempt shows for it.
- A small difference is worth a small difference in score; equally good attempts get the same score."""


class RelativeJudgeConfig(EvaluatorBaseConfig, name="relative_judge"):
    """A model scores the generations of an example against each other, so no expected answer is needed."""

    llm_name: LLMRef
    """The judge, a key of `llms`; not the model that is trained."""
    rubric: str = Field(default=DEFAULT_RUBRIC, min_length=1)
    """What makes an attempt better, in your words."""
    judged: Literal["trajectory", "answer"] = "trajectory"
    """What the judge sees of an attempt: its conversations and the answer, or only the answer."""
    max_group: int = Field(default=8, ge=2)
    """Attempts in one call; further ones are judged in further calls, each with one attempt of the first call."""
    max_chars: int = Field(default=60_000, ge=1000)
    """Characters of all attempts in one call. One that is longer than half of this is cut in the middle of its texts;
    its tool calls stay."""
    both_orders: float = Field(default=0.1, ge=0, le=1)
    """Share of the groups that are judged a second time in reversed order, to measure what the order does; their
    scores are the mean of both. Pairs always are."""
    cache: bool = True
    """Use a judgement of the same attempts again, within a run."""
    seed: int = 0
    """Of the order in which attempts are shown."""
    max_concurrency: int = Field(default=8, ge=1)
    """Groups that are judged at the same time."""

    @property
    def compares_generations(self) -> bool:
        return True

    @field_validator("rubric")
    @classmethod
    def _says_something(cls, rubric: str) -> str:
        if not rubric.strip():
            raise ValueError("the rubric is empty, so the judge would not know what is better")
        return rubric
