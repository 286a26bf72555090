"""Trajectories with a preference pair each, as `dpo_traj_builder` gives them."""

from random import Random

from nat.data_models.finetuning import DPOItem, Trajectory, TrajectoryCollection
from nat.finetuning.interfaces.trajectory_builder import TrajectoryBuilder
from nat.finetuning.trajectories.groups import group_by_example
from nat.runs.rollouts import RolloutRecord


def pair(
    example: str,
    *,
    prompt="move?",
    chosen: str = "good",
    rejected: str = "bad",
    scores: tuple[float, float] | None = (1.0, 0.0),
    reward: float | None = None,
) -> Trajectory:
    """A pair of an example; the reward is the difference of the scores if it is left out."""
    facts = {"id": example, "example_id": example}
    if scores is not None:
        facts |= {"chosen_score": scores[0], "rejected_score": scores[1]}
    item = DPOItem(prompt=prompt, chosen_response=chosen, rejected_response=rejected)
    difference = scores[0] - scores[1] if scores and reward is None else 1.0
    return Trajectory(episode=[item], reward=difference if reward is None else reward, metadata=facts)


def collection(*trajectories: Trajectory, run_id: str = "nemo_dpo_1") -> TrajectoryCollection:
    """The trajectories in groups by example."""
    return TrajectoryCollection(trajectories=group_by_example(trajectories), run_id=run_id)


def game(examples: int = 10, turns: int = 4) -> list[Trajectory]:
    """Some turns of some examples, all different."""
    return [pair(f"e{e}", prompt=f"e{e} turn {t}") for e in range(examples) for t in range(turns)]


def rng(seed: int) -> Random:
    """A generator whose draws the test repeats."""
    return Random(seed)


class ScriptedPairs(TrajectoryBuilder):
    """Gives the pairs of each pass in order; an exception in their place is raised."""

    def __init__(self, config, passes) -> None:
        super().__init__(config)
        self.passes = list(passes)
        self.started: list[str] = []
        self.records: list[RolloutRecord] = []
        """The rollouts of each pass."""

    async def start_run(self, run_id, meta=None):
        self.started.append(run_id)

    async def finalize(self, run_id, meta=None):
        found = self.passes.pop(0)
        if isinstance(found, Exception):
            raise found
        return collection(*found, run_id=run_id)

    def rollouts(self, run_id):
        return self.records

    def log_progress(self, run_id, metrics, output_dir=None):
        pass
