"""`nat init`: write a project that trains as it stands, to be replaced piece by piece."""

from importlib.util import find_spec
from pathlib import Path

import click

from nat.cli import event_loop
from nat.cli.steps import shown_steps
from nat.errors import one_of
from nat.project.new_project import (
    FRAMEWORKS,
    check_model_can_be_made,
    extras_of,
    folder_for,
    framework_named,
    model_named,
    write_project,
)
from nat.wire.extras import install_hint, missing_of_extra


@click.command("init")
@click.argument("name")
@click.option(
    "--framework",
    default="openai",
    show_default=True,
    help=f"What the agent is made with: {one_of(FRAMEWORKS)}. `command` is a program in any language.",
)
@click.option("--model", help="Your model in place of a tiny one: a folder, a .gguf file, or a name on the Hub.")
@click.option("--no_model", is_flag=True, help="Make no tiny model; config.yml then needs a model of yours.")
def init_command(*, name: str, framework: str, model: str | None, no_model: bool) -> None:
    """Write a project into the new folder NAME: agent, score, data, configuration, tiny model and test."""
    chosen = framework_named(framework)
    folder = folder_for(name)
    if model is None and not no_model:
        check_model_can_be_made()
    with shown_steps() as steps:
        if model is not None:
            steps.begin("converting the model's file, once" if model.endswith(".gguf") else "looking for the model")
            model, no_model = model_named(model), True
        if not no_model:
            steps.begin("making a tiny model")
        event_loop.run(write_project(folder, chosen, with_model=not no_model, model=model, on_line=steps.at))
    click.echo(next_steps(folder, chosen, with_model=model is not None or not no_model, model=model))


def next_steps(folder: Path, framework: str, *, with_model: bool, model: str | None = None) -> str:
    """What to do next, beginning with what is missing; `model` is the user's own."""
    steps = [(f"cd {folder.name}", "")]
    if any(missing_of_extra(extra) for extra in extras_of(framework)):
        steps.append((install_hint(*extras_of(framework)), ""))
    if find_spec("pytest") is None:
        steps.append(("pip install pytest", ""))
    if not with_model:
        steps.append(("edit config.yml", "set llms.student.model to your model"))
    if model is not None:
        steps.append(
            (f"nat fits {model}", "tells whether your model can be trained here, and with tools: this agent has one")
        )
    steps += [
        ("python -m pytest", "plays the agent; a script takes the model's part"),
        ("nat probe --config_file=config.yml", "tells whether the model can learn this"),
        ("nat finetune --config_file=config.yml", "trains the model, and says whether it improved"),
    ]
    lines = (f"  {command:<38}{f'  # {what}' if what else ''}".rstrip() for command, what in steps)
    title = FRAMEWORKS[framework].title
    return "\n".join([f"Wrote {folder.name}/: an agent for {title}. README.md says what to replace. Next:", "", *lines])
