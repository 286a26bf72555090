"""What a probe with given rewards says."""

from fakes.run_records import NOON, rollout_record
from nat.data_models.finetuning import Trajectory, TrajectoryCollection
from nat.finetuning.diagnosis.facts import Facts
from nat.finetuning.diagnosis.window import Window
from nat.finetuning.epoch import PlayedEpoch, epoch_record
from nat.finetuning.probe.records import ExampleResult, Measured, ProbeReport
from nat.finetuning.probe.statistics import prospects, value_counts
from nat.finetuning.probe.verdict import judge


def report_of(*groups, metrics=None, guards=None, **fields) -> ProbeReport:
    """What a probe with these rewards by example says."""
    examples = [
        ExampleResult(id=str(number), rewards=list(group), differs=len(set(group)) > 1)
        for number, group in enumerate(groups)
    ]
    counts = value_counts([group for group in groups if group])
    facts = {
        "config_file": "c.yml",
        "model": {"student": "tiny"},
        "reward": "match",
        "num_examples": 100,
        "examples": examples,
        "num_rollouts": sum(map(len, groups)),
        "left_out": {},
        "failures": [],
        "metrics": {"time/rollout": 1.0} | (metrics or {}),
        "seconds_per_rollout": 0.1,
        "longest_answer": 5,
        "configured_generations": 4,
        "prospects": prospects(counts) if counts else [],
    }
    measured = Measured(**facts | fields)
    known = Facts(
        compares="batch" if measured.across_groups else "group",
        noise=measured.noise,
        references=measured.references,
        most_generations=measured.prospects[-1] if measured.prospects else None,
    )
    epochs = [epoch_of(measured)] if measured.groups else []
    return judge(measured, Window(epochs, facts=known, **({"guards": guards} if guards else {})))


def epoch_of(measured):
    """The same as the first epoch of a run."""
    groups = [[Trajectory(episode=[], reward=reward) for reward in each.rewards] for each in measured.groups]
    records = [
        rollout_record(each.id, number, reward=reward, num_calls=1, output=str(number))
        for each in measured.groups
        for number, reward in enumerate(each.rewards)
    ]
    played = TrajectoryCollection(trajectories=groups, run_id="probe")
    epoch = PlayedEpoch(0, "probe", played, played, records)
    record = epoch_record(epoch, timestamp=NOON, curriculum=None, seconds=1.0, stages={}, job={})
    known = {"left_out": measured.left_out, "num_rollouts": measured.num_rollouts}
    return record.model_copy(update={**known, "metrics": record.metrics | measured.metrics})


ZEROS, ONES, MIXED = [0.0] * 4, [1.0] * 4, [0.0, 1.0, 0.0, 1.0]
