"""`nat replay`: a recorded update and a recorded rollout happen again, and a planted mistake is located."""

import json
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fakes.backend_here import backend_here
from nat.backend.training import batch as batch_module
from nat.backend.training import learner as learner_module
from nat.backend.training import optimizer as optimizer_module
from nat.backend.training import passes as passes_module
from nat.cli.main import exit_code
from nat.finetuning.trajectories import rows as rows_module
from nat.plugins.local.replay import _untaught as untaught
from nat.registry.catalog import pushed_catalog
from nat.runs.packed_rows import pack_rows, unpack_rows
from recorded.agents import register
from recorded.playing import play


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Two epochs of our backend on the word model, one rollout at a time."""
    folder = tmp_path_factory.mktemp("played")
    play("grpo", folder)
    return folder


@pytest.fixture
def replay(played, capsys, monkeypatch):
    """Replay as a command of the run's folder; gives the exit code, and the report."""
    monkeypatch.chdir(played)
    monkeypatch.setattr("nat.plugins.local.replay.running_backend", backend_here)
    monkeypatch.setattr("nat.plugins.local.llm.running_backend", backend_here)

    def run(*options, run="runs/latest"):
        threads = torch.get_num_threads()
        with pushed_catalog():
            register()
            code = exit_code(["replay", run, "--trust", *options])
        torch.set_num_threads(threads)
        captured = capsys.readouterr()
        assert captured.out or "--json" not in options, captured.err
        return code, json.loads(captured.out) if "--json" in options else captured.out + captured.err

    return run


@pytest.mark.parametrize(("name", "epoch"), [("lora", "2"), ("phases", "3")])
def test_updates_of_other_runs_are_equal(replay, tmp_path, name, epoch):
    """An adapter that GSPO trains with a penalty towards its reference, and play after two epochs of imitation."""
    play(name, tmp_path)
    code, report = replay("--epoch", epoch, "--json", run=str(tmp_path / "runs" / "latest"))
    assert (code, report["first"], report["same_request"]) == (0, None, True)
    assert {each["likeness"] for each in report["compared"]} == {"equal"}


@pytest.mark.parametrize(("name", "epoch"), [("dpo", "2"), ("kto", "1"), ("phases", "1")])
def test_updates_on_a_file_are_equal(replay, tmp_path, monkeypatch, name, epoch):
    """Preferences, labels and demonstrations: the rows are read again; with other texts, the request is another one."""
    play(name, tmp_path)
    monkeypatch.chdir(tmp_path)
    code, report = replay("--epoch", epoch, "--json", "--seed", "7")
    assert (code, report["first"], report["same_request"]) == (0, None, True)
    assert {each["likeness"] for each in report["compared"]} == {"equal"}
    assert report["moved"]["failure"] is None
    rows = tmp_path / "rows.jsonl"
    rows.write_text(rows.read_text().replace("done", "then done"))
    code, report = replay("--epoch", epoch, "--json")
    assert (code, report["same_request"]) == (1, False)


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """Two epochs that learned from a teacher, which is not there any more."""
    folder = tmp_path_factory.mktemp("taught")
    play("distill", folder)
    shutil.rmtree(folder / "teacher")
    return str(folder / "runs" / "latest")


@pytest.mark.parametrize("epoch", ["1", "2"])
def test_an_update_of_a_teacher_is_equal(replay, taught, epoch):
    """The journal has the teacher's log probabilities, so nobody asks the teacher again."""
    code, report = replay("--epoch", epoch, "--json", "-o", "training.options.max_log_ratio", "0.1", run=taught)
    assert (code, report["first"], report["same_request"]) == (0, None, True)
    assert {each["likeness"] for each in report["compared"]} == {"equal"}
    assert report["moved"]["moved"] > 0


def test_the_teacher_of_another_algorithm(replay, taught):
    """An algorithm without a teacher learns from the same rollouts; one with a teacher needs an epoch that had one."""
    code, report = replay("--epoch", "2", "--algorithm", "reinforce_pp", "--json", run=taught)
    assert (code, report["moved"]["failure"]) == (0, None)
    code, page = replay("--epoch", "2", "--algorithm", "distill")
    assert code == 1
    assert "'distill' imitates a teacher, and none has scored these rollouts" in page


def test_a_journal_without_the_teacher(replay, taught, tmp_path):
    """Those of earlier releases, which have the rows alone."""
    copied = shutil.copytree(Path(taught).resolve(), tmp_path / "run", symlinks=True)
    with sqlite3.connect(copied / "journal.sqlite") as journal:
        for phase, epoch, example, packed in journal.execute("SELECT phase, epoch, example_id, rows FROM rollouts"):
            if packed is not None:
                bare = pack_rows([untaught(row) for row in unpack_rows(packed)])
                update = "UPDATE rollouts SET rows = ? WHERE phase = ? AND epoch = ? AND example_id = ?"
                journal.execute(update, [bare, phase, epoch, example])
    code, page = replay("--epoch", "2", run=str(copied))
    assert code == 1
    assert "epoch 2 had a teacher, whose log probabilities the journal does not have" in page


@pytest.mark.parametrize("epoch", ["1", "2"])
def test_an_update_is_equal_bit_by_bit(replay, epoch):
    """From the model itself, and from a checkpoint: each number, the weights, and the optimizer's state."""
    code, report = replay("--epoch", epoch, "--json")
    assert (code, report["first"], report["same_request"]) == (0, None, True)
    assert {each["likeness"] for each in report["compared"]} == {"equal"}
    stages = {each["stage"] for each in report["compared"]}
    assert stages == {"reward", "log probabilities", "advantage", "loss", "gradient", "step", "weights"}
    assert (report["weights"]["tensors"], report["weights"]["differing"]) == (80, 0)


def test_recorded_settings_are_used(replay, played, tmp_path):
    """Also where the configuration would come to others today, as with another release's defaults."""
    copied = shutil.copytree((played / "runs/latest").resolve(), tmp_path / "run", symlinks=True)
    with sqlite3.connect(copied / "journal.sqlite") as journal:
        ((text,),) = journal.execute("SELECT record FROM facts WHERE name = 'info'").fetchall()
        info = json.loads(text)
        assert "algorithm: lite_ppo" in info["config_text"]
        info["config_text"] = info["config_text"].replace("algorithm: lite_ppo", "algorithm: grpo")
        journal.execute("UPDATE facts SET record = ? WHERE name = 'info'", [json.dumps(info)])
    code, report = replay("--epoch", "2", "--json", run=str(copied))
    assert (code, report["first"], report["same_request"], report["algorithm"]) == (0, None, False, "lite_ppo")


def test_the_page_says_so(replay):
    code, page = replay("--epoch", "2")
    assert code == 0
    assert (
        "Every number is equal bit by bit; of the checkpoint after it, 80 of 80 tensors are equal bit by bit." in page
    )


def doubled_reward(monkeypatch):
    make = rows_module.TrainingRollout
    monkeypatch.setattr(rows_module, "TrainingRollout", lambda reward, **rest: make(reward=2 * reward, **rest))


def turned_advantage(monkeypatch):
    compute = batch_module.batch_advantages

    def turned(*given, **options):
        found = compute(*given, **options)
        for own in found.groups:
            own.neg_()
        return found

    monkeypatch.setattr(batch_module, "batch_advantages", turned)


def heavier_loss(monkeypatch):
    weigh = learner_module.rollout_weights
    monkeypatch.setattr(learner_module, "rollout_weights", lambda tokens, resolved: 1.01 * weigh(tokens, resolved))


def hotter_model(monkeypatch):
    make = passes_module.make_micro_batch

    def hotter(*given):
        found = make(*given)
        return replace(found, temperatures_K=torch.full_like(found.weights_K, 1.02))

    monkeypatch.setattr(passes_module, "make_micro_batch", hotter)


def lost_gradient(monkeypatch):
    clip = optimizer_module.MasterAdamW.clip

    def of_a_part(self, max_norm):
        next(iter(self._holders.values())).grad.zero_()
        return clip(self, max_norm)

    monkeypatch.setattr(optimizer_module.MasterAdamW, "clip", of_a_part)


def longer_warmup(monkeypatch):
    rate = learner_module.learning_rate_at
    monkeypatch.setattr(learner_module, "learning_rate_at", lambda config, step: 1.1 * rate(config, step))


def shifted_weights(monkeypatch):
    step = optimizer_module.MasterAdamW.step

    def turned(self, learning_rate):
        before = {name: weight.detach().clone() for name, weight in self._holders.items()}
        change = step(self, learning_rate)
        with torch.no_grad():
            for name, weight in self._holders.items():
                weight.copy_(2 * before[name] - weight)
        return change

    monkeypatch.setattr(optimizer_module.MasterAdamW, "step", turned)


@pytest.mark.parametrize(
    ("plant", "stage"),
    [
        (doubled_reward, "reward"),
        (hotter_model, "log probabilities"),
        (turned_advantage, "advantage"),
        (heavier_loss, "loss"),
        (lost_gradient, "gradient"),
        (longer_warmup, "step"),
        (shifted_weights, "weights"),
    ],
)
def test_a_planted_mistake_is_located(replay, monkeypatch, plant, stage):
    """The first number that differs is of the stage in which one line was changed."""
    plant(monkeypatch)
    code, report = replay("--epoch", "2", "--json")
    assert (code, report["first"]["stage"]) == (1, stage), report["first"]


def test_changed_settings_move_gradients(replay):
    """Each token's gradient before and after, with its text and place, those that moved most first."""
    code, report = replay("--epoch", "2", "-o", "training.beta", "0.5", "--json")
    moved = report["moved"]
    assert (code, moved["settings"], moved["tokens"], moved["moved"]) == (0, {"beta": "0.5"}, 15, 15)
    steps = [abs(token["after"] - token["before"]) for token in moved["most"]]
    assert steps == sorted(steps, reverse=True)
    first = moved["most"][0]
    assert (first["conversation"], first["message"], first["text"]) == (0, 1, "red")
    _, page = replay("--epoch", "2", "--algorithm", "rloo")
    assert "With algorithm rloo, the gradient of 15 of 15 tokens moves" in page


def test_another_seed_is_another_order_only(replay):
    """One optimizer step has no order, so nothing moves."""
    _, report = replay("--epoch", "2", "--seed", "7", "--json")
    assert report["moved"]["moved"] == 0
    assert report["moved"]["cosine"] == pytest.approx(1)


def test_settings_that_are_wrong_are_refused(replay, monkeypatch):
    """Before anything is trained."""
    monkeypatch.setattr(learner_module.Learner, "update", lambda *_, **__: pytest.fail("it trains"))
    code, page = replay("--epoch", "2", "-o", "training.betta", "1")
    assert code == 1
    assert "training.betta: unknown key. Did you mean 'beta'?" in page
    code, page = replay("--epoch", "2", "-o", "llms.student.temperature", "1")
    assert code == 2
    assert "a replay changes the update alone" in page


def test_a_checkpoint_that_is_gone(replay, played):
    """The message names the epochs that can be replayed, and the setting that keeps more."""
    checkpoint = (played / "runs/latest/checkpoints/step_000001").resolve()
    away = checkpoint.rename(played / "away")
    try:
        code, page = replay("--epoch", "2")
    finally:
        away.rename(checkpoint)
    assert code == 1
    assert "no checkpoint of optimizer step 1" in page
    assert "epochs that begin with the model or a checkpoint: 1\n" in page
    assert "keep_last: 1000" in page
    code, page = replay("--epoch", "9")
    assert "epoch 9 has no update of the embedded backend\n  → epochs with one: 1, 2" in page


def test_a_rollout_is_the_recorded_one(replay):
    """The same tokens with the same log probabilities, from the seed and the weights of its epoch."""
    code, report = replay("--epoch", "2", "--rollout", "1/3", "--json")
    assert (code, report["cause"], report["row"], report["policy_step"]) == (0, None, None, 1)
    assert (report["equal_tokens"], report["largest_gap"]) == (3, 0.0)
    code, page = replay("--epoch", "2", "--rollout", "1/3")
    assert "Every token is the recorded one." in page


def test_a_rollout_of_another_prompt(replay, played):
    """The first message that differs is shown."""
    data, before = played / "train.jsonl", (played / "train.jsonl").read_text()
    data.write_text(before.replace("berry n21", "apple n20"))
    try:
        code, report = replay("--epoch", "2", "--rollout", "1/3", "--json")
    finally:
        data.write_text(before)
    assert (code, report["cause"]) == (1, "another prompt, of other messages")
    assert report["messages"] == ["user: berry n21", "user: apple n20"]
    assert report["recorded"]["logprob"] is None


def test_a_rollout_of_other_weights(replay, played):
    """The log probabilities of the same tokens differ."""
    weights = (played / "runs/latest/checkpoints/step_000001/model.safetensors").resolve()
    manifest = weights.with_name("manifest.json")
    kept = weights.read_bytes(), manifest.read_bytes()
    tensors = load_file(weights)
    tensors["model.norm.weight"] = 1.2 * tensors["model.norm.weight"]
    save_file(tensors, weights, metadata={"format": "pt"})
    manifest.unlink()
    try:
        code, report = replay("--epoch", "2", "--rollout", "1/3", "--json")
    finally:
        weights.write_bytes(kept[0])
        manifest.write_bytes(kept[1])
    assert code == 1
    assert "other weights" in report["cause"]


def test_a_rollout_that_is_not_there(replay):
    code, page = replay("--epoch", "2", "--rollout", "1/9")
    assert code == 1
    assert "epoch 2 has no rollout '1/9'" in page
