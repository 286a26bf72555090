"""The settings of an update that is trained again, and journals of others."""

import pytest
import yaml

from fakes.recorded_updates import job, journal, now, rollout
from nat.errors import ConfigError, JournalError
from nat.plugins.local.replay import _changed, _digest, _recorded, replay_update
from nat.runs.journal import Journal
from nat.runs.records import Phase
from nat.wire.ledger import TrainedJob
from nat.wire.training import JobState, JobStatus, TrainingConfig

__all__ = ["journal", "now"]


def test_recorded_settings_are_settings(now):
    """A factor that has the algorithm's name is the algorithm's own."""
    training = {"algorithm": "rft", "settings": {"advantage": "rft", "aggregation": "seq_mean", "beta": 0.5}}
    found = _recorded(job(now, 0, 1).model_copy(update={"training": training}))
    assert found.model_dump(exclude_unset=True) == {"algorithm": "rft", "aggregation": "seq_mean", "beta": 0.5}


def test_one_setting_is_changed():
    """Values are YAML, and an algorithm's option has its own name below `options`."""
    base = TrainingConfig(algorithm="dpo", options={"pairs": 1}, beta=0.1)
    found = _changed(base, {"beta": "0.5", "options.completion": "rest"})
    assert found.model_dump(exclude_unset=True) == {
        "algorithm": "dpo",
        "options": {"pairs": 1, "completion": "rest"},
        "beta": 0.5,
    }
    with pytest.raises(ConfigError, match=r"training\.beta"):
        _changed(base, {"beta": "much"})


@pytest.mark.parametrize("line", ["[]", "x", "[" * 99_999, '{"state": {}}', '{"state": {"id": "a"}}', "\0" * 99])
def test_a_ledger_in_any_form_gives_what_it_has(tmp_path, line):
    """A folder may be of others."""
    whole = TrainedJob(step=1, digest="12", state=JobState(id="a", status=JobStatus.COMPLETED)).model_dump_json()
    ledger = tmp_path / "checkpoints" / "jobs.jsonl"
    ledger.parent.mkdir()
    ledger.write_text(f"{whole}\n{line}\n")
    assert _digest(tmp_path, "a") == "12"


@pytest.mark.parametrize(
    "changed", [{"id": "/../x"}, {"metrics": {"policy_step": float("nan")}}, {"metrics": {"policy_step": float("inf")}}]
)
async def test_an_update_in_any_form_ends_in_words(tmp_path, now, changed):
    """A journal may be of others."""
    text = yaml.safe_dump(
        {
            "llms": {"student": {"_type": "local", "model": "student"}},
            "trainer_adapters": {"adapter": {"llm": "student"}},
            "finetuning": {"trainer_adapter": "adapter"},
        }
    )
    with Journal.create(tmp_path, "run", text, created_at=now) as journal:
        record = job(now, 0, 1).model_copy(update={"training": {"algorithm": "lite_ppo"}, **changed})
        journal.record_rollouts(Phase.TRAIN, 0, [rollout("1", 0, 1.0)])
        journal.record_job(record)
        with pytest.raises(JournalError, match="has no update that can be trained again"):
            await replay_update(journal, 0, {})
