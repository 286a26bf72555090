import json
import sys

import pytest
from click.testing import CliRunner

from fakes.guide_components import GUIDE_YAML, register_guide_components
from nat.cli.commands.validate import validate_command
from nat.config.sources import parse_yaml
from nat.registry.catalog import pushed_catalog


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The command on the guide's YAML, with its components registered and its variable set."""
    monkeypatch.setenv("TRAINING_API_KEY", "sk-secret")
    file = tmp_path / "config.yml"
    file.write_text(GUIDE_YAML)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.json").write_text('[{"question": "What is 2 + 3?", "answer": "5"}]')
    monkeypatch.chdir(tmp_path)
    with pushed_catalog():
        register_guide_components()
        yield lambda *options: CliRunner().invoke(validate_command, ["--config_file", str(file), *options])


def test_a_valid_file(run):
    """The output says so, and shows no secret."""
    result = run()
    assert result.exit_code == 0
    assert "✓ Configuration file is valid!" in result.output
    assert "sk-secret" not in result.output


def test_a_wrong_file(run):
    """Every error is shown, and the exit code is 1; `-o` is applied before the check."""
    result = run("-o", "finetuning.trainer", "x", "-o", "llms.my_model.model_nam", "y")
    assert result.exit_code == 1
    assert "✗ Validation failed!" in result.output
    assert "finetuning.trainer: 'x' is not under trainers" in result.stderr
    assert "llms.my_model.model_nam: unknown key. Did you mean 'model_name'?" in result.stderr


def test_json_for_machines(run):
    """The output is one JSON object for valid and invalid files."""
    assert json.loads(run("--json").stdout)["valid"]
    wrong = run("--json", "-o", "finetuning.num_epochs", "0")
    assert wrong.exit_code == 1
    assert json.loads(wrong.stdout)["errors"][0].startswith("finetuning.num_epochs: ")


def test_imports_of_the_command_line_follow_those_of_the_file(run):
    """`--import` may be repeated, beside `-o`; each is imported, and errors name the place in the list."""
    wrong = run("--import", "none.py", "-o", "imports", "[json]", "--import", "no-module")
    assert wrong.exit_code == 1
    assert "imports.1: the file none.py does not exist" in wrong.stderr
    assert "imports.2: no-module cannot be imported" in wrong.stderr
    assert run("--import", "json").exit_code == 0


SHORT = """
llms: {student: {_type: local, model: some_model}}
workflow: {_type: python, function: "validated.py:answer", llm: student}
eval: {evaluators: {right: {_type: exact_match}}}
finetuning: {enabled: true, reward_function: {name: right}}
"""


@pytest.fixture
def run_short(tmp_path, monkeypatch):
    """The command on a file that leaves out what follows from its LLM."""
    file = tmp_path / "config.yml"
    file.write_text(SHORT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "validated", raising=False)
    (tmp_path / "validated.py").write_text("async def answer(question, llm): return question['text']")
    (tmp_path / "rows.json").write_text('[{"question": "What is 2 + 3?", "answer": "5"}]')
    return lambda *options: CliRunner().invoke(validate_command, ["--config_file", str(file), *options])


def test_unknown_targets_are_told_as_by_the_run(run_short):
    """A warning, since the workflow's code may name a function or a model that the YAML does not have."""
    options = ("-o", "finetuning.target_functions", "[plannr]", "-o", "finetuning.target_model", "studnet")
    result = run_short(*options)
    assert result.exit_code == 0
    told = json.loads(run_short("--json", *options).stdout)["warnings"]
    assert [text.partition(" is not")[0] for text in told] == [
        "finetuning.target_functions: 'plannr'",
        "finetuning.target_model: 'studnet'",
    ]
    assert all(text in result.stderr for text in told)
    assert json.loads(run_short("--json").stdout)["warnings"] == []


def test_the_long_form_is_shown(run_short):
    """`--show` prints YAML with what follows, `-o` included, and nothing else."""
    shown = run_short("--show", "-o", "trajectory_builders.rollouts.num_generations", "4")
    tree = parse_yaml(shown.stdout)
    assert tree["trajectory_builders"] == {"rollouts": {"_type": "local_traj_builder", "num_generations": 4}}
    assert tree["finetuning"]["trainer_adapter"] == "weights"
    assert json.loads(run_short("--show", "--json").stdout)["configuration"]["trainers"] == tree["trainers"]


ROWS = ("-o", "eval.general.dataset", "{_type: json, file_path: rows.json}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-o", "workflow", "null"), "workflow: this section is missing"),
        ((*ROWS, "-o", "eval.general.dataset.structure.question_key", "prompt"), "'prompt': no such column"),
        ((*ROWS, "-o", "eval.general.dataset.file_path", "row.json"), "Did you mean 'rows.json'?"),
        ((*ROWS, "-o", "workflow.function", "validated.py:answr"), "has no function 'answr'"),
        (ROWS, "the workflow failed on the example '1': TypeError"),
    ],
)
def test_rows_and_code_are_tried(run_short, options, message):
    """Rows are read, the workflow is built, and one example is played, though the model does not exist."""
    result = run_short(*options)
    assert (result.exit_code, message in result.stderr) == (1, True), result.stderr
    assert message in json.loads(run_short(*options, "--json").stdout)["errors"][0]
