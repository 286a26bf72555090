"""The batches that a run has sent: what is sent again after a kill, and what cannot be."""

import pytest

from nat.errors import BackendError
from nat.plugins.local.batches import BATCHES, SentBatches
from nat.wire.training import SavedJobs, TrainingJob

GROUPS = [{"id": "g", "rollouts": [{"reward": 1, "rows": [{"token_ids": [1, 2], "spans": [{"start": 1, "stop": 2}]}]}]}]
NONE = SavedJobs(newest=None, fallback=None)


def job(number, **more):
    return TrainingJob.model_validate({"id": f"run-{number:06d}", "groups": GROUPS, **more})


@pytest.fixture
def batches(tmp_path):
    return SentBatches(tmp_path)


def test_batches_stay_until_two_checkpoints_have_their_weights(batches):
    """What comes before the older of the two is dropped when the next batch is sent."""
    for number in range(1, 4):
        batches.keep(job(number), NONE)
    batches.keep(job(4), SavedJobs(newest="run-000003", fallback="run-000002"))
    assert batches.ids() == ["run-000002", "run-000003", "run-000004"]
    assert batches.newer("run-000002", ["run-000001", "run-000002", "run-000003"]) == ["run-000003"]
    batches.keep_last()
    assert batches.ids() == ["run-000004"]


@pytest.mark.parametrize("saved", ["run-000001", None])
def test_updates_that_are_lost_are_an_error(batches, saved):
    """The checkpoint is older than what can be sent again; the run does not go on without them."""
    for number in (3, 4):
        batches.keep(job(number), NONE)
    with pytest.raises(BackendError, match=rf"the weights of {saved or 'no update'}, and the batches .* are gone"):
        batches.newer(saved, [f"run-{number:06d}" for number in range(1, 5)])


def test_a_batch_is_read_as_it_was_sent_without_the_program_of_others(batches, tmp_path):
    """The folder may be a copy of someone else's run: only the adapter says what runs. A damaged file is named."""
    program = {"arguments": ["rm"], "timeout": 1}
    batches.keep(job(1, program=program), NONE)
    assert batches.read("run-000001") == job(1)
    assert batches.read("run-000001").model_fields_set == job(1).model_fields_set
    own = {"program": {"arguments": ["mine"], "timeout": 2}}
    assert batches.read("run-000001", **own) == job(1, **own)
    (tmp_path / BATCHES / "run-000001.json").write_text("[")
    with pytest.raises(BackendError, match=r"run-000001\.json cannot be read"):
        batches.read("run-000001")
