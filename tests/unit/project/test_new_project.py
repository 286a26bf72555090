import json
from pathlib import Path

import pytest
import yaml

from nat.config import parse_config
from nat.errors import ProjectRefused
from nat.project.new_project import (
    FRAMEWORKS,
    SHARED,
    TEMPLATES,
    check_model_can_be_made,
    folder_for,
    framework_named,
    write_project,
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """The user's current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def written(framework: str = "openai") -> Path:
    project = folder_for("demo")
    await write_project(project, framework, with_model=False)
    return project


@pytest.mark.parametrize("name", ["../x", "a b", "/x", "x/y", ".", "", "-x", "_x", "1x", "naïve", "x\n"])
def test_a_name_is_a_word(name):
    """Paths, blanks and other signs are refused, with what is allowed."""
    with pytest.raises(ProjectRefused, match="cannot be the name of a project") as raised:
        folder_for(name)
    assert "begin with a letter" in str(raised.value.hint)


def test_the_name_of_this_package_is_refused():
    """Python merges a folder `nat` with the installed namespace package."""
    with pytest.raises(ProjectRefused, match="part of this package"):
        folder_for("nat")


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_what_is_there_stays(folder, kind):
    """A file, a link and a folder with files in it are refused, and are left as they were."""
    target = folder / "demo"
    match kind:
        case "file":
            target.write_text("mine")
        case "link":
            target.symlink_to(folder / "nowhere")
        case _:
            target.mkdir()
            (target / "mine").touch()
    before = sorted(folder.rglob("*"))
    with pytest.raises(ProjectRefused, match="nothing was changed"):
        folder_for("demo")
    assert sorted(folder.rglob("*")) == before


async def test_an_empty_folder_is_used(folder):
    """A folder that the user made for the project becomes the project."""
    (folder / "demo").mkdir()
    assert (await written() / "config.yml").is_file()


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_each_project_is_complete(framework):
    """Its files are there without a placeholder left, and its YAML names files that exist."""
    project = await written(framework)
    python = framework != "command"
    agent = {"agent.py", "workflow.py"} if python else {"program"}
    shared = {"README.md", "config.yml", "data", "score.py", "test_agent.py"}
    assert {path.name for path in project.iterdir()} == agent | shared
    readme, config = (project / "README.md").read_text(), (project / "config.yml").read_text()
    assert "$" not in readme + config
    assert readme.startswith("# demo\n")
    tree = yaml.safe_load(config)
    assert all((project / name).is_file() for name in tree.get("imports", ()))
    assert all(f"`{path.name}" in readme for path in project.iterdir() if path.name != "README.md")


async def test_the_settings_in_comments_are_those_that_follow():
    """Without their `#`, they change nothing but the algorithm and its rate, which are examples."""
    project = await written()
    tree = yaml.safe_load((project / "config.yml").read_text())
    comments = [line for line in (project / "config.yml").read_text().splitlines() if line.startswith(("# t", "#  "))]
    settings = yaml.safe_load("\n".join(line[2:] for line in comments if "nat validate" not in line))
    common = {"llms": tree["llms"], "finetuning": {"enabled": True}}
    short, long = parse_config(common), parse_config(common | settings)
    assert settings.keys() == {"trajectory_builders", "trainer_adapters"}
    assert long.trajectory_builders == short.trajectory_builders
    assert long.trainer_adapters.keys() == short.trainer_adapters.keys()
    assert long.finetuning == short.finetuning


async def test_the_two_halves_of_the_data_share_no_question():
    """The held-out questions are new to the model, and all answers are right."""
    project = await written()
    rows = [json.loads(line) for file in sorted(project.glob("data/*")) for line in file.read_text().splitlines()]
    assert len(rows) == len({row["question"] for row in rows}) == 88
    for row in rows:
        a, b = row["id"].split("+")
        assert (row["question"], row["answer"]) == (f"What is {a} + {b}?", str(int(a) + int(b)))


async def test_a_failure_leaves_nothing(folder, monkeypatch):
    """Where the model cannot be made, the error has the reason, and there is no half project."""
    broken = folder / "broken"
    broken.mkdir()
    (broken / "torch.py").write_text("raise ImportError('libgomp is missing')")
    monkeypatch.setenv("PYTHONPATH", str(broken))
    with pytest.raises(ProjectRefused, match="libgomp is missing") as raised:
        await write_project(folder_for("demo"), "openai", with_model=True)
    assert "--no_model" in str(raised.value.hint)
    assert list(folder.iterdir()) == [broken]


def test_missing_packages_are_named_before_anything_is_written():
    """The error names the packages, the command that installs them, and the way without a model."""
    check_model_can_be_made()
    with pytest.raises(ProjectRefused, match="the tiny model cannot be made") as raised:
        check_model_can_be_made(extra="crewai")
    assert "crewai" in raised.value.message
    assert "pip install" in str(raised.value.hint)
    assert "--no_model" in str(raised.value.hint)


def test_every_framework_has_a_template():
    """The folders of `templates/` are the frameworks, and what all of them share."""
    folders = {path.name for path in TEMPLATES.iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders == {*FRAMEWORKS, SHARED.name}


def test_the_name_of_an_extra_is_understood():
    """A framework may be written as its extra; an unknown one suggests the nearest."""
    assert framework_named("Llama-Index") == "llama_index"
    with pytest.raises(ProjectRefused, match="Did you mean 'langgraph'"):
        framework_named("langraph")
