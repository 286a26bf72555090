"""Which models a chat has: the one that the run started from, and the best that its folder has."""

import json
import shutil

import pytest

from fakes.runs_on_disk import CONFIG, make_run
from nat.dashboard.chat_models import Reply, Side, _answer, pair_of, served
from nat.errors import BackendError, JournalError, ModelUnavailable
from nat.runs.journal import Journal, reading
from nat.runs.records import BestEpoch, BestMeasure


def keep(run_dir, *names):
    """Checkpoints of these names, the last of which is the newest."""
    for name in names:
        folder = run_dir / "checkpoints" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    link(run_dir, "latest", names[-1])


def link(run_dir, name, target):
    (run_dir / "checkpoints" / name).symlink_to(target)


def pair(run_dir):
    with reading(run_dir) as journal:
        return pair_of(journal)


def trained(run_dir):
    return pair(run_dir).sides[1]


def config(**block):
    return CONFIG | {"llms": {"student": {"_type": "local", "model": "models/small", **block}}}


def test_the_best_weights_come_first(tmp_path):
    """An exported model, else the checkpoint of the best, else the last model, else the newest checkpoint."""
    run_dir = make_run(tmp_path, "run-1")
    keep(run_dir, "step_3", "step_4")
    assert trained(run_dir).model == str(run_dir / "checkpoints" / "step_4")
    for folder in (run_dir / "model", run_dir / "best_model"):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
    shutil.rmtree(run_dir / "best_model")
    assert trained(run_dir).model == str(run_dir / "model")
    link(run_dir, "best", "step_3")
    found = trained(run_dir)
    assert found.model == str(run_dir / "checkpoints" / "step_3")
    assert found.what == "the best weights (held-out score 0.800 after epoch 3), checkpoints/step_3"
    shutil.copytree(run_dir / "model", run_dir / "best_model")
    assert trained(run_dir).model == str(run_dir / "best_model")


def test_a_run_that_did_not_improve_shows_its_newest_weights(tmp_path):
    """Its best weights are those that it started from, which are on the other side already."""
    run_dir = make_run(tmp_path, "run-1")
    with Journal.open(run_dir) as journal:
        journal.record_best(BestEpoch(epoch=0, score=0.9, measure=BestMeasure.HELD_OUT))
    keep(run_dir, "step_4")
    assert trained(run_dir).what.startswith("the newest weights, as none scored higher than the untrained ones")


def test_a_link_out_of_the_folder_is_not_followed(tmp_path):
    """The folder may come from others; what they link to is not the run's."""
    run_dir, other = make_run(tmp_path, "run-1"), tmp_path / "other"
    keep(run_dir, "step_4")
    shutil.copytree(run_dir / "checkpoints" / "step_4", other)
    link(run_dir, "best", other)
    (run_dir / "best_model").symlink_to(other)
    assert trained(run_dir).model == str(run_dir / "checkpoints" / "step_4")


def test_checkpoints_of_another_folder_are_not_the_run_s(tmp_path):
    """A link in place of their folder is none of the run's either."""
    run_dir, other = make_run(tmp_path, "run-1"), make_run(tmp_path, "run-2")
    keep(other, "step_4")
    (run_dir / "checkpoints").symlink_to(other / "checkpoints")
    with pytest.raises(JournalError, match="has no trained weights"):
        pair(run_dir)


def test_options_that_decide_the_answers_are_the_run_s(tmp_path):
    """Others, such as the device of another machine, are not."""
    block = {"dtype": "float32", "chat_template_kwargs": {"enable_thinking": False}, "device": "cuda:3", "threads": 64}
    run_dir = make_run(tmp_path, "run-1", config=config(temperature=0.7, revision=123, **block))
    keep(run_dir, "step_4")
    found = pair(run_dir)
    assert [side.model for side in found.sides] == ["models/small", str(run_dir / "checkpoints" / "step_4")]
    assert [side.revision for side in found.sides] == ["123", None]
    assert found.sides[0].options == {"dtype": "float32", "chat_template_kwargs": {"enable_thinking": False}}
    assert (found.system, found.temperature) == ("", 0.7)


@pytest.mark.parametrize("temperature", ["hot", -1, 1e9, float("nan")])
def test_a_strange_temperature_is_1(tmp_path, temperature):
    """Whatever a journal has there."""
    run_dir = make_run(tmp_path, "run-1", config=config(temperature=temperature))
    keep(run_dir, "step_4")
    assert pair(run_dir).temperature == 1.0


@pytest.mark.parametrize(
    ("block", "kept", "why"),
    [
        ({}, False, "has no trained weights"),
        ({"_type": "openai"}, True, "the weights of this run are with the server"),
        ({"model": ["a"]}, True, "the weights of this run are with the server"),
    ],
)
def test_without_weights_the_reason_is_given(tmp_path, block, kept, why):
    """And the setting that keeps some."""
    run_dir = make_run(tmp_path, "run-1", config=config(**block))
    if kept:
        keep(run_dir, "step_4")
    with pytest.raises(JournalError, match=why) as caught:
        pair(run_dir)
    assert "save_every" in caught.value.hint or "_type: local" in caught.value.hint


async def test_nothing_is_downloaded(tmp_path, monkeypatch):
    """A journal of others names any model; a name of the Hub has to be in the cache."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelUnavailable, match=r"OWNER/NAME is neither a folder here .* nor in the cache"):
        async with served(Side("Untrained", "", "OWNER/NAME", {})):
            pass


async def test_an_option_of_another_release_is_named(tmp_path):
    """The journal may be older or newer than this release."""
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BackendError, match="dtype"):
        async with served(Side("Untrained", "", str(tmp_path), {"dtype": "int3"})):
            pass


class Chatty:
    """A backend that answers with one long token."""

    async def send(self, *_: object, **__: object) -> "Chatty":
        return self

    async def aiter_bytes(self):
        choice = {"delta": {"content": "x" * 1_000_000}, "finish_reason": None, "token_ids": [1]}
        yield f"data: {json.dumps({'choices': [choice]})}\n\n".encode()

    async def aclose(self) -> None:
        pass


async def test_an_answer_of_long_tokens_is_cut():
    """A tokenizer of others may have a token of megabytes, which the page would show again with each news."""
    reply = Reply("Trained")
    await _answer(Chatty(), reply, [], 1.0)
    assert (len(reply.text), reply.note) == (100_000, "cut before its last 900000 characters")
