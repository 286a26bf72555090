import json
import shutil
import sqlite3
from contextlib import closing

import pytest

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.forecasts import FORECAST
from fakes.openai_server import OpenAIServer
from nat.errors import BackendUnreachable, ConfigError, DatasetError, EvaluationError
from nat.finetuning.dry_run import PROBE_SECONDS, dry_run
from nat.finetuning.interfaces.trainer_adapter import Recipe
from nat.finetuning.progress import RunProgress
from nat.finetuning.verdict import smallest_improvement
from nat.runs.journal import JOURNAL_NAME
from nat.runs.records import Phase


async def ask_twice(question, ask):
    """An agent that makes two calls."""
    first = await ask(question)
    await ask("Are you sure?")
    return first


class RecordedProgress(RunProgress):
    """A listener that keeps the messages."""

    def __init__(self):
        self.messages = []

    def message(self, text):
        self.messages.append(text)


async def test_a_dry_run_resolves_counts_and_builds_but_plays_nothing(tmp_path):
    """The plan has the run's numbers; no request is sent and no folder is created."""
    async with OpenAIServer() as server:
        project = FinetuningProject(tmp_path, server)
        with project.registered():
            plan = await dry_run(project.given(validation_dataset=str(project.held_out), validation_interval=3))
        assert server.requests == []
    assert (plan.num_examples, plan.num_generations, plan.rollouts_per_epoch) == (4, 2, 8)
    assert (plan.num_held_out, plan.validation_interval) == (8, 3)
    assert (plan.trainer, plan.trajectory_builder, plan.trainer_adapter) == (
        "test_trainer",
        "test_builder",
        "test_adapter",
    )
    assert plan.warnings == []
    assert (project.built, project.closed) == (1, 1)
    assert not project.output_dir.exists()


async def test_a_dry_run_warns_of_settings_that_cannot_work(tmp_path):
    """One generation has nothing to compare with; training data cannot show an improvement."""
    async with OpenAIServer() as server:
        project = FinetuningProject(tmp_path, server)
        project.config["trajectory_builders"]["builder"]["num_generations"] = 1
        with project.registered():
            plan = await dry_run(project.given(validation_dataset=str(project.dataset)))
    assert len(plan.warnings) == 2
    assert "4 held-out examples are in the training dataset, too" in plan.warnings[0]
    assert plan.warnings[1].startswith("trajectory_builders.builder.num_generations is 1: a rollout is compared with")


@pytest.mark.parametrize(("target", "said"), [("studnet", "Did you mean 'student'?"), ("tiny", ""), ("student", "")])
async def test_a_target_model_that_no_llm_has_is_a_warning(tmp_path, target, said):
    """It may be an LLM's key or the name of its model; for another name, the closest one is suggested."""
    async with OpenAIServer() as server:
        project = FinetuningProject(tmp_path, server)
        project.finetuning["target_model"] = target
        with project.registered():
            plan = await dry_run(project.given())
    found = [text for text in plan.warnings if "target_model" in text]
    assert (len(found), said in "".join(found)) == (1 if said else 0, True)


async def test_a_misspelt_answer_column_is_a_warning(tmp_path):
    """Plan and run warn for both datasets, since the project's evaluator does not declare that it compares."""
    heard = RecordedProgress()
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        project.config["eval"]["evaluators"]["match"] = {"_type": "json_path_score", "path": "$.score"}
        project.write_rows(project.held_out.name, 3, question="held-out", anwser="right")
        with project.registered():
            plan = await dry_run(project.given(validation_dataset=str(project.held_out)))
            with pytest.raises(EvaluationError):  # the answers of this agent have no such score
                await project.run(heard, validation_dataset=str(project.held_out))
    told = "there is no column 'answer', so evaluators get no expected answer. Did you mean 'anwser'?"
    assert [told in "".join(texts) for texts in (plan.warnings, heard.messages)] == [True, True]


async def test_shared_examples_are_found_by_their_content(tmp_path):
    """Two of eight held-out examples are trained on, from another file and with other ids."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        rows = json.loads(project.held_out.read_text())
        rows[3]["question"], rows[5]["question"] = "q2", "q0"
        project.held_out.write_text(json.dumps(rows))
        with project.registered():
            plan = await dry_run(project.given(validation_dataset=str(project.held_out)))
            heard = RecordedProgress()
            await project.run(heard, validation_dataset=str(project.held_out))
    [warning] = plan.warnings
    assert warning.startswith("2 held-out examples are in the training dataset, too:")
    assert warning in heard.messages


async def test_held_out_examples_that_repeat_others_count_once(tmp_path):
    """The plan, the run and its verdict say so; each is played."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        rows = json.loads(project.held_out.read_text())
        again = [row | {"id": f"again {row['id']}"} for row in rows]
        project.held_out.write_text(json.dumps([*rows, *again]))
        with project.registered():
            plan = await dry_run(project.given(validation_dataset=str(project.held_out)))
            heard = RecordedProgress()
            result = await project.run(heard, validation_dataset=str(project.held_out))
    [warning] = [text for text in plan.warnings if "repeat others" in text]
    assert warning.startswith("8 of 16 held-out examples repeat others, so the verdict counts 8: ")
    assert warning in heard.messages
    assert (plan.num_held_out, result.comparison.num_examples) == (16, 8)
    assert plan.smallest_improvement == smallest_improvement(8)


@pytest.mark.parametrize("which", ["training", "held-out"])
async def test_a_dataset_without_the_answers_that_the_reward_needs_is_an_error(tmp_path, which):
    """The error before anything is built has the file, its columns, and the option for another column."""
    async with OpenAIServer() as server:
        project = FinetuningProject(tmp_path, server)
        name = {"training": project.dataset, "held-out": project.held_out}[which].name
        project.write_rows(name, 3, question=which, anwser="right")
        with project.registered(), pytest.raises(DatasetError) as caught:
            await dry_run(project.given(validation_dataset=str(project.held_out)))
        assert (project.built, server.requests) == (0, [])
    text = str(caught.value)
    assert f"{name}: no row has an expected answer, and eval.evaluators.match cannot score without" in text
    assert "there is no column 'answer'. Did you mean 'anwser'? Columns: anwser, id, question." in text
    assert "eval.general.dataset.structure.answer_key" in text


async def test_a_dry_run_warns_of_a_target_that_is_no_function(tmp_path):
    """An unknown target function is a warning, because code may name functions itself."""
    async with OpenAIServer() as server:
        project = FinetuningProject(tmp_path, server)
        project.config["finetuning"]["target_functions"] = ["<workflov>"]
        with project.registered():
            plan = await dry_run(project.given(validation_dataset=str(project.held_out)))
    [warning] = plan.warnings
    assert "'<workflov>' is not under `functions`. Did you mean '<workflow>'?" in warning


async def test_a_dry_run_finds_a_backend_that_is_down(tmp_path):
    """A dry run checks the adapter's health, as a run does."""
    async with OpenAIServer() as server:
        project = FinetuningProject(tmp_path, server)
        project.adapter.healthy = False
        with project.registered(), pytest.raises(BackendUnreachable):
            await dry_run(project.given())


async def test_no_secret_is_in_the_plan(tmp_path):
    """Keys in the resolved configuration are starred."""
    async with OpenAIServer() as server:
        project = FinetuningProject(tmp_path, server)
        project.config["llms"]["student"]["api_key"] = "sk-very-secret"
        with project.registered():
            plan = await dry_run(project.given())
    assert "sk-very-secret" not in plan.model_dump_json()


async def test_before_the_first_run_the_load_is_assumed(tmp_path):
    """The backend is asked about the longest example and `max_tokens`, and measures for a few seconds.

    No time is predicted and nothing is proposed from an assumption.
    """
    async with OpenAIServer() as server:
        project = FinetuningProject(tmp_path, server)
        project.config["trainer_adapters"]["adapter"]["llm"] = "student"
        project.config["llms"]["student"]["max_tokens"] = 30
        project.write_rows(project.dataset.name, 4, question="q" * 39, answer="right")
        project.adapter.forecasted = FORECAST
        with project.registered():
            plan = await dry_run(project.given())
    assert (plan.load.assumed, plan.load.calls, plan.load.row_tokens, plan.load.sampled_tokens) == (True, 1, 40, 30)
    [request] = project.adapter.forecasts
    assert (request.num_rollouts, request.probe_seconds) == (8, PROBE_SECONDS)
    assert (request.workload.chats, request.workload.row_tokens, request.workload.epoch_tokens) == (4, 40, 320)
    assert (plan.epoch_seconds, plan.proposals) == (None, [])


@pytest.mark.parametrize(("forecast", "advice"), [(FORECAST, {"student": "made for cpu"}), (None, {})])
async def test_the_provider_of_the_trained_llm_advises_by_the_forecast(tmp_path, forecast, advice):
    """Its sentence is in the plan under the LLM's key; a backend that forecasts nothing has no measurement to judge."""
    async with OpenAIServer() as server:
        project = FinetuningProject(tmp_path, server)
        project.config["llms"]["student"]["_type"] = "mortal_openai"
        project.config["trainer_adapters"]["adapter"]["llm"] = "student"
        project.adapter.forecasted = forecast
        with project.registered():
            plan = await dry_run(project.given())
    assert plan.advice == advice


async def test_after_a_run_the_load_is_that_of_its_last_epoch(tmp_path):
    """Calls and tokens are those that were played; another workflow's run does not count."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server, agent=ask_twice)
        project.config["trainer_adapters"]["adapter"]["llm"] = "student"
        with project.registered():
            run = await project.run()
            plan = await dry_run(project.given())
            project.config["llms"]["student"]["model_name"] = "another"
            other = await dry_run(project.given())
        with project.journal() as journal:
            lengths = [len(row.token_ids) for each in journal.rollouts(Phase.TRAIN, 1) for row in each.rows]
    assert (plan.load.assumed, plan.load.calls) == (False, 2)
    assert (plan.load.longest_row, plan.load.row_tokens) == (max(lengths), sum(lengths) / 8)
    assert plan.load.seconds > 0
    assert (plan.load.rollouts, plan.load.groups) == (8, 8)
    assert plan.load.update_seconds >= 0
    assert plan.load.basis == f"in run {run.run_dir.name}"
    assert other.load.assumed


@pytest.mark.parametrize(("max_tokens", "assumed"), [(30, False), (1, True)])
async def test_a_limit_that_no_answer_meets_changes_no_load(tmp_path, max_tokens, assumed):
    """Who sets `max_tokens` as proposed keeps what was measured; a limit below an answer seen is another load."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        project.config["trainer_adapters"]["adapter"]["llm"] = "student"
        with project.registered():
            await project.run()
            unset = await dry_run(project.given())
            project.config["llms"]["student"]["max_tokens"] = max_tokens
            plan = await dry_run(project.given())
    [proposal] = [each for each in unset.proposals if "max_tokens" in each.settings]
    longest = unset.load.longest_answer
    assert 1 < longest <= 15
    assert proposal.settings == f"llms: {{student: {{max_tokens: {2 * longest}}}}}"
    assert proposal.why.startswith("llms.student.max_tokens is not set: the longest answer of 8 rollouts in run ")
    assert plan.load.assumed == assumed


async def test_a_damaged_run_does_not_hide_the_earlier_ones(tmp_path):
    """A file that is no journal, one with an unreadable record, and one with an odd configuration are passed over."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        with project.registered():
            run = await project.run()
            for name, damage in (
                ("run-x", "UPDATE facts SET record = '{}'"),
                ("run-y", "UPDATE facts SET record = json_set(record, '$.config_text', 'odd')"),
            ):
                shutil.copytree(run.run_dir, project.output_dir / name)
                with closing(sqlite3.connect(project.output_dir / name / JOURNAL_NAME)) as connection, connection:
                    connection.execute(damage)
            shutil.copytree(run.run_dir, project.output_dir / "run-z")
            (project.output_dir / "run-z" / JOURNAL_NAME).write_bytes(b"not a database, but long enough to be read")
            plan = await dry_run(project.given())
    assert plan.load.basis == f"in run {run.run_dir.name}"


async def test_judges_are_counted(tmp_path):
    """An evaluator that names an LLM calls it once for each rollout."""
    async with OpenAIServer() as server:
        project = FinetuningProject(tmp_path, server)
        project.config["eval"]["evaluators"]["judge"] = {"_type": "llm_judge", "llm_name": "student"}
        with project.registered():
            plan = await dry_run(project.given(validation_dataset=str(project.held_out), validation_interval=1))
    assert plan.judges == ["judge"]
    assert (plan.num_validations, plan.held_out_rollouts) == (3, 24)
    assert plan.smallest_improvement == 0.75


async def test_what_does_not_fit_is_an_error_with_the_settings_that_do(tmp_path):
    """The error has the bytes by part, what is free, and the settings; a run is not refused for it."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        project.config["trainer_adapters"]["adapter"]["llm"] = "student"
        project.adapter.forecasted = FORECAST.model_copy(update={"available": 3 * 10**9})
        with project.registered(), pytest.raises(ConfigError) as caught:
            await dry_run(project.given())
    text = str(caught.value)
    assert "llms.student: training all weights takes 8.0 GB at its peak, by prediction" in text
    assert "the machine has 3.0 GB free for it: weights 4.0 GB, gradients 4.0 GB" in text
    assert "these fit: lora: {rank: 16} (1.0 GB)" in text


async def test_an_algorithm_that_compares_across_groups_learns_from_equal_ones(tmp_path):
    """The share of groups with a difference, which a run of it records, too, says nothing about its epochs."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        with project.registered():
            await project.run()
            by_group = await dry_run(project.given())
            project.adapter.recipe = Recipe(compares="batch")
            by_batch = await dry_run(project.given())
    assert (by_group.load.groups, by_batch.load.groups) == (8, 0)
