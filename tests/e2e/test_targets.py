"""A workflow with several functions and models, of which some are trained."""

import pytest

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.openai_server import OpenAIServer
from nat.builder.context import Context
from nat.finetuning.trajectories.rows import training_groups
from nat.runs.records import Phase


async def team(question, ask):
    """A planner and a player with one model, and a critic with another model between them."""
    context = Context.get()
    with context.push_active_function("planner", question):
        await ask(f"plan {question}")
    with context.push_active_function("critic", question):
        await ask(f"criticise {question}", llm="judge")
    with context.push_active_function("player", question):
        return await ask(question)


def project_of(tmp_path, server):
    """A project whose adapter trains no LLM by name, so only `target_model` selects."""
    project = FinetuningProject(tmp_path, server, team)
    project.config["llms"]["judge"] = project.config["llms"]["student"] | {"model_name": "big"}
    project.finetuning["num_epochs"] = 1
    return project


def said_by(trajectory):
    return [(item.metadata["model"], item.content) for item in trajectory.answers]


@pytest.mark.parametrize("name", ["student", "tiny"])
async def test_of_two_agents_one_is_trained(tmp_path, name):
    """Only the target's calls give rows, whether its YAML key or its model names it; the journal counts all calls."""
    async with OpenAIServer(Coin()) as server:
        project = project_of(tmp_path, server)
        project.finetuning["target_model"] = name
        with project.registered():
            await project.run()
    (collection,) = project.adapter.submitted
    assert [said_by(t) for t in collection.trajectories[0]] == [
        [("student", "wrong"), ("student", "wrong")],
        [("student", "right"), ("student", "right")],
    ]
    assert {len(r.rows) for group in training_groups(collection) for r in group.rollouts} == {2}
    with project.journal() as journal:
        record = next(iter(journal.rollouts(Phase.TRAIN, 0)))
    assert record.num_calls == 3
    assert record.functions == {"planner": 1, "critic": 1, "player": 1}
    assert record.models == {"student": 2, "tiny": 2, "judge": 1, "big": 1}
    assert len(record.rows) == 2
    assert [(c.began.value, len(c.messages), len(c.answers)) for c in record.conversations] == [
        ("first", 2, 1),
        ("other prompt", 2, 1),
    ]
