import json
from math import nan

import pytest

from fakes.run_records import NOON, epoch_record, rollout_record, validation_record
from nat.cli.main import exit_code
from nat.finetuning.diagnosis import gather
from nat.finetuning.diagnosis.catalogue import CONDITIONS
from nat.finetuning.diagnosis.gather import diagnose_phases, diagnose_run, findings_of, unsent_prompts
from nat.finetuning.diagnosis.report import diagnosis_text
from nat.finetuning.metrics import score_metrics
from nat.finetuning.rollout_statistics import success_by_example
from nat.runs.journal import Journal
from nat.runs.liveness import marked_alive
from nat.runs.records import Phase, RunState, TrainingPhase
from nat.runs.rollouts import LeftOutCause

CONFIG = "finetuning:\n  target_functions: [plannr]\n"


@pytest.fixture
def journal(tmp_path):
    with Journal.create(tmp_path, "run-1", CONFIG, created_at=NOON) as journal:
        yield journal


def play(journal, epoch, reward, **changes):
    records = [
        rollout_record(str(n), g, reward=reward, output=f"{n} {g}", num_calls=1, functions={"planner": 1}, **changes)
        for n in range(4)
        for g in range(8)
    ]
    journal.record_rollouts(Phase.TRAIN, epoch, records)
    return {"examples": success_by_example(records), "metrics": score_metrics(records)}


def causes(journal, *, ended=True) -> list[str]:
    return [finding.cause for finding in diagnose_run(journal, ended=ended).findings]


def test_a_run_without_an_epoch_has_no_cause(journal):
    """Nothing was played, so there is nothing to judge."""
    diagnosis = diagnose_run(journal, ended=True)
    assert diagnosis.healthy
    assert diagnosis_text(diagnosis) == "Healthy: the run has no number out of its healthy range."


def test_a_run_that_failed_in_its_first_epoch_is_judged_by_its_rollouts(journal):
    """The epoch has no record; the target is read from the run's configuration."""
    play(journal, 0, 0.0, left_out=LeftOutCause.NO_TARGET_FUNCTION)
    [finding] = diagnose_run(journal, ended=True).findings
    assert finding.cause == "wrong_target"
    assert "target_functions: plannr; calls of an epoch: planner (32)" in finding.seen


def test_a_journal_of_an_earlier_release_is_completed_from_its_rollouts(journal):
    """Its epochs have neither the examples' scores nor the metrics of the answers."""
    for epoch in range(3):
        play(journal, epoch, 0.0, truncated=True)
        journal.record_epoch(
            epoch_record(epoch, 0.0, max_reward=0.0, groups_without_difference=24, metrics={"rollout/truncated": 1.0})
        )
    assert causes(journal)[0] == "truncation"


async def test_a_run_that_cannot_be_judged_goes_on(journal, caplog):
    """A plug-in's backend may report what is no number; the log has the traceback."""
    journal.record_epoch(epoch_record(0, metrics={"reward/compared": nan}))
    assert await findings_of(journal.run_dir, ended=True) == []
    assert "ValueError" in caplog.text


@pytest.mark.parametrize(("phase", "last"), [(0, [4, 5, 6, 7]), (6, [6, 7])])
async def test_a_long_run_that_goes_on_is_judged_by_its_last_epochs(journal, monkeypatch, phase, last):
    """Of its phase, so that what it holds in memory is bounded; its end judges all of it."""
    judged, judge = [], gather.diagnosis_of
    monkeypatch.setattr(gather, "MOST_EPOCHS", 4)
    monkeypatch.setattr(
        gather, "diagnosis_of", lambda window, **more: judged.append(list(window.epochs)) or judge(window, **more)
    )
    if phase:
        journal.record_phase(TrainingPhase(name="first", first_epoch=0, num_epochs=phase))
        journal.record_phase(TrainingPhase(name="second", first_epoch=phase, num_epochs=2))
    for epoch in range(8):
        journal.record_epoch(epoch_record(epoch))
    await findings_of(journal.run_dir, ended=False)
    await findings_of(journal.run_dir, ended=True)
    beside, *whole = [[epoch.epoch for epoch in epochs] for epochs in judged]
    assert beside == last
    assert [epoch for epochs in whole for epoch in epochs] == list(range(8))


def test_validations_are_compared_with_the_words_of_their_examples(journal):
    """The held-out rollouts before training have the words; without them, nothing is claimed."""
    play(journal, 0, 0.5)
    journal.record_epoch(epoch_record(0, 0.5))
    for epoch in (0, 1):
        journal.record_validation(validation_record(epoch))
    words = [{"role": "user", "content": "other words"}]
    journal.record_rollouts(Phase.VALIDATION, 0, [rollout_record("x", messages=words)])
    facts = diagnose_run(journal, ended=True).window.facts
    assert (facts.unseen_words, facts.usual_unseen) == (1.0, None)


def test_the_command_finds_a_run_and_prints_its_causes(journal, tmp_path, capsys):
    """A run that goes on is not called too short; an unknown run is an error."""
    for epoch in range(2):
        play(journal, epoch, 0.5)
        journal.record_epoch(
            epoch_record(epoch, 0.5, min_reward=0.5, max_reward=0.5, filtered_groups=0, groups_without_difference=24)
        )
    journal.set_state(RunState.FAILED, at=NOON)
    assert exit_code(["diagnose", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Not learning. The mean reward was 0.500 in the first third")
    assert "\n1. The score is always the same (100% of the signal)\n   seen     every one of 384 rollouts" in text
    assert exit_code(["diagnose", str(tmp_path / "nothing")]) == 1
    assert "no run is called" in capsys.readouterr().err


def test_a_killed_run_has_ended(journal, capsys):
    """Its journal says `running` for good, and no process holds its lock: it made too few steps."""
    for epoch in range(4):
        play(journal, epoch, 0.5)
        journal.record_epoch(epoch_record(epoch, 0.5))
    with marked_alive(journal.run_dir):
        assert exit_code(["diagnose", str(journal.run_dir)]) == 0
    assert "Too few optimizer steps" not in capsys.readouterr().out
    assert exit_code(["diagnose", str(journal.run_dir)]) == 0
    assert "Too few optimizer steps" in capsys.readouterr().out


@pytest.mark.parametrize(("bound", "expected"), [("0.9", []), ("0.5", ["truncation"]), ("many", ["truncation"])])
def test_the_bounds_are_those_of_the_run(tmp_path, bound, expected):
    """Its `guards` are read from its configuration; the usual ones replace those that are not valid."""
    text = f"finetuning:\n  guards: {{max_truncated: {bound}}}\n"
    with Journal.create(tmp_path, "run-1", text, created_at=NOON) as run:
        for epoch in range(2):
            play(run, epoch, 0.0, truncated=True)
            metrics = {"rollout/truncated": 0.8, "reward/truncated_lowest": 1.0}
            run.record_epoch(epoch_record(epoch, 0.5, metrics=metrics, examples={"a": 0.5}))
        assert causes(run, ended=False) == expected


def test_causes_have_names_of_their_own():
    """Other programs read the names."""
    names = [cause.name for cause in CONDITIONS]
    assert len(set(names)) == len(names) > 20


def test_each_phase_is_judged_by_itself(journal, tmp_path, capsys):
    """The rewards of a file and those of rollouts are no fall, and each phase's causes name it."""
    for epoch in range(9):
        offline = epoch < 3
        if epoch in {0, 3}:
            name, count = ("sft", 3) if offline else ("play", 6)
            journal.record_phase(TrainingPhase(name=name, first_epoch=epoch, num_epochs=count))
        reward = 1.0 if offline else 0.0
        known = play(journal, epoch, reward)
        fields = {"played": False, "phase": "sft"} if offline else {"max_reward": 0.0, "phase": "play"}
        journal.record_epoch(
            epoch_record(
                epoch, 1.0 if offline else 0.0, **known, **fields, groups_without_difference=0 if offline else 24
            )
        )
    (sft, imitated), (grpo, played) = diagnose_phases(journal, ended=True)
    assert (sft.name, grpo.name) == ("sft", "play")
    assert len(imitated.window.epochs) == 3
    assert len(played.window.epochs) == 6
    assert played.findings[0].cause == "too_hard"
    journal.set_state(RunState.COMPLETED, at=NOON)
    assert exit_code(["diagnose", str(tmp_path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [phase["phase"] for phase in shown["phases"]] == ["sft", "play"]
    assert exit_code(["diagnose", str(tmp_path)]) == 0
    page = capsys.readouterr().out
    assert page.startswith("Phase sft: epochs 1 to 3\n\n")
    assert "the run made 3 optimizer steps" in page
    assert "Phase play: epochs 4 to 9\n\nNot learning." in page


async def test_the_end_of_a_run_names_the_phase_of_a_cause(journal, tmp_path):
    """While the run goes on, the current phase alone is judged, and needs no name."""
    for number, name in enumerate(("one", "two")):
        journal.record_phase(TrainingPhase(name=name, first_epoch=number, num_epochs=1))
        play(journal, number, 0.0)
        journal.record_epoch(epoch_record(number, 0.0, max_reward=0.0, groups_without_difference=24, phase=name))
    titles = [finding.title for finding in await findings_of(tmp_path, ended=True)]
    assert {title.partition(":")[0] for title in titles} == {"Phase one", "Phase two"}
    assert not any(finding.title.startswith("Phase") for finding in await findings_of(tmp_path, ended=False))


OWN = """
llms: {student: {max_tokens: 4096}}
trajectory_builders: {rollouts: {num_generations: 12}}
trainer_adapters: {weights: {training: {max_kl: 0.5}}}
finetuning: {target_model: student, trajectory_builder: rollouts, trainer_adapter: weights, num_epochs: 5}
"""


@pytest.mark.parametrize(
    ("config", "rate", "expected"),
    [
        (OWN, 0.003, ["{student: {max_tokens: 8192}}", "num_generations: 24", "num_epochs: 20", "max_kl: 5", "0.001"]),
        (
            OWN.replace("4096", "1"),
            0.003,
            ["{student: {max_tokens: 64}}", "num_generations: 24", "num_epochs: 20", "max_kl: 5", "0.001"],
        ),
        ("a: b", None, ["{LLM: {max_tokens: 1024}}", "num_generations: 16", "20", "max_kl: 0.1", "LEARNING_RATE"]),
    ],
)
def test_a_remedy_goes_on_from_the_runs_own_numbers(tmp_path, config, rate, expected):
    """What is to be raised is never lowered, and a limit leaves room for an answer; without a number, usual ones."""
    with Journal.create(tmp_path, "run-1", config, created_at=NOON) as journal:
        metrics = {} if rate is None else {"train/learning_rate": rate}
        journal.record_epoch(epoch_record(0, metrics=metrics))
        words = diagnose_run(journal, ended=True).window.facts.words
    names = ("truncation", "few_generations", "few_steps", "held_back", "rate_too_high")
    settings = [next(each for each in CONDITIONS if each.name == name).settings_with(words) for name in names]
    assert all(part in text for part, text in zip(expected, settings, strict=True)), settings


def test_a_remedy_shows_rollouts_of_its_own_run(tmp_path):
    """Which need not be the latest."""
    with Journal.create(tmp_path, "run-1", "a: b", created_at=NOON) as journal:
        journal.record_epoch(epoch_record(0, metrics={"rollout/tool_errors": 1.0}))
        [finding] = diagnose_run(journal, ended=False).findings
    assert "`nat runs show run-1 --epoch 1 --worst 1`" in finding.remedy


SYSTEM = "You are a careful clerk.\nAnswer {question} with a city."


@pytest.mark.parametrize(
    ("sent", "unsent"),
    [
        (["You are  a careful clerk. Answer Where? with a city."], []),
        (["Where?"], ["workflow.system_prompt", "functions.judge.instructions"]),
        ([], []),
    ],
)
def test_a_prompt_that_no_call_has_is_found(sent, unsent):
    """By its longest part between what is filled in, whatever the spaces; without any message nothing is known."""
    config = {
        "workflow": {"_type": "a", "system_prompt": SYSTEM, "prompt": "short", "max_tokens": 5, "note": SYSTEM},
        "functions": {"judge": {"_type": "b", "instructions": "You are a careful clerk."}, "broken": 3},
    }
    record = rollout_record(messages=[{"role": "system", "content": text} for text in sent])
    assert unsent_prompts(config, [record]) == unsent
