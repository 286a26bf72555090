"""Complete the trace of each rollout with what the run makes of it: where it belongs, its reward, its weights."""

from nat.finetuning.events import Event, RolloutsPlayed, RunBegun
from nat.rollout.traces import JudgedRollout, Traces
from nat.runs.rollouts import RolloutRecord
from nat.telemetry import names
from nat.telemetry.attributes import Evaluation, Value, text


class RolloutTraces:
    """An observer of the run's log."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces
        self._run_id = ""

    def __call__(self, event: Event) -> None:
        match event:
            case RunBegun():
                self._run_id = event.run_id
            case RolloutsPlayed():
                of_run: dict[str, Value] = {
                    names.RUN_ID: self._run_id,
                    names.PURPOSE: str(event.phase),
                    names.EPOCH: event.epoch,
                }
                self._traces.judged(_judged(record, of_run) for record in event.records)


def _judged(record: RolloutRecord, of_run: dict[str, Value]) -> JudgedRollout:
    facts = of_run | {names.EXAMPLE_ID: text(record.example_id), names.GENERATION: record.generation}
    if record.policy_versions:
        facts[names.WEIGHT_VERSION] = ", ".join(sorted(record.policy_versions))
    if record.left_out is not None:
        facts[names.LEFT_OUT] = str(record.left_out)
    if record.reward is None:
        return JudgedRollout(record.example_id, record.seed, facts, ())
    facts[names.REWARD] = record.reward
    beside = [Evaluation(name, score) for name, score in record.scores_beside.items()]
    reward = Evaluation("reward", record.reward, record.reasoning)
    return JudgedRollout(record.example_id, record.seed, facts, (reward, *beside))
