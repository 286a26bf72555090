"""Mistakes of users in a working project: the message says where, what is wrong, and what to do, by its key words."""

import shlex
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from nat.cli.main import exit_code
from nat.registry.catalog import pushed_catalog

PROJECT = Path(__file__).parent / "project"
VALIDATE = "validate --config_file config.yml"
TRAIN = "finetune --config_file config.yml"
TRAINING = "trainer_adapters.weights.training"
CLOSED = {"_type": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1", "api_key": "k"}
CSV = {"_type": "csv", "file_path": "data/train.csv"}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A copy of the project, which is the current folder; its modules are forgotten."""
    shutil.copytree(PROJECT, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("OPENAI_API_KEY", "TEMPERATURE"):
        monkeypatch.delenv(name, raising=False)
    with pushed_catalog():
        yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def refused(capsys, command: str) -> str:
    """What a command prints that must fail, without line breaks."""
    assert exit_code(shlex.split(command)) != 0
    printed = capsys.readouterr()
    return " ".join((printed.out + printed.err).split())


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("finetuning.num_epochs", "many", "finetuning.num_epochs: should be a valid integer|'many'"),
        ("llms.student.timeout", "30s", "llms.student.timeout: should be a valid number|30s"),
        ("finetuning.max_failure_rate", "50%", "finetuning.max_failure_rate: should be a valid number|'50%'"),
        (f"{TRAINING}.learning_rate", -0.001, f"{TRAINING}.learning_rate: should be greater than 0"),
        (f"{TRAINING}.max_grad_norm", float("inf"), f"{TRAINING}.max_grad_norm: should be a finite number"),
        (f"{TRAINING}.algoritm", "grpo", f"{TRAINING}.algoritm: unknown key|'algorithm'"),
        ("finetuning.enabled", "sure", "finetuning.enabled: should be a valid boolean|'sure'"),
        ("finetuning.reward_function", "right", "finetuning.reward_function: should be a mapping|'right'"),
        ("llms.student", "models/student", "llms.student: expected a mapping with the key _type|local"),
        ("llms.student.model_name", 7, "llms.student.model_name: should be a valid string; got 7"),
        ("llms.student.stop", "END", "llms.student.stop: should be a valid list|'END'"),
        ("llms.student.device", "gpu", "llms.student.device: expected|'cuda'|'gpu'"),
        ("llms.student._type", "locale", "llms.student._type|'locale'|Did you mean 'local'"),
        ("llms.student.temperature", 0, "llms.student|temperature=0 cannot be trained on|sampling_in_training"),
        ("llms.student.temperature", "${TEMPERATURE}", "llms.student.temperature|TEMPERATURE"),
        ("llms.student.model", "models/studnt", "models/studnt|Did you mean 'models/student'"),
        ("llms.judge", {**CLOSED, "do_auto_retry": True}, "judge.do_auto_retry: unknown key"),
        ("finetuning.trackers", {"team": {"_type": "wandb", "mode": "x"}}, "trackers.team.mode: unknown key|offline"),
        ("workflow.llm", "studnt", "workflow.llm: 'studnt' is not under llms|student"),
        ("workflow._type", "addr", "workflow._type: 'addr' is not registered|'adder'"),
        ("trainer_adapters.weights.llm", "other", "trainer_adapters.weights.llm: 'other'|There: student"),
        ("finetuning.trainer", "trainer", "finetuning.trainer: 'trainer'|epochs"),
        ("finetuning.traner", "epochs", "finetuning.traner: unknown key|'trainer'"),
        ("finetuning.reward_function.name", "accuracy", "finetuning.reward_function.name: 'accuracy'|There: right"),
        ("eval.evaluators.right", {"_type": "llm_judge", "llm_name": "student"}, "right: its judge|that is trained"),
        ("eval.evaluators.right", {"_type": "json_path_score", "path": "$.[score"}, "right.path|not a JSON path"),
        ("finetuning.phases", [{"name": "first", "num_epochs": 2}], "num_epochs|has no effect beside phases"),
        ("imports", ["agent.py", "scores.py"], "imports.1: the file scores.py does not exist"),
        ("imports", ["json.py"], "imports.0|json.py"),
    ],
)
def test_a_wrong_value_is_refused_at_its_key(project, capsys, key, value, words):
    """The whole file is checked before anything is loaded, and the key of the YAML is named."""
    tree = node = yaml.safe_load(Path("config.yml").read_text())
    *above, last = key.split(".")
    for each in above:
        node = node.setdefault(each, {})
    node[last] = value
    Path("config.yml").write_text(yaml.safe_dump(tree))
    told = refused(capsys, TRAIN if "models/stud" in words else VALIDATE)
    assert [word for word in words.split("|") if word not in told] == [], told


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("async def adder", "def adder(question)\nasync def adder", "imports.0: agent.py cannot be imported|agent.py"),
        ("import LLMRef", "import LLMRefs", "imports.0: agent.py cannot be imported|LLMRefs|no such name"),
        ("    yield FunctionInfo", "    return FunctionInfo", "imports.0|adder is not an async generator|exactly once"),
        ('FunctionBaseConfig, name="adder"', "FunctionBaseConfig", 'imports.0|AdderConfig has no type name|name="…"'),
        ("(config_type=AdderConfig)", "", "imports.0|a decorator got adder|config_type=MyConfig"),
    ],
)
def test_a_mistake_in_the_agent_names_its_file(project, capsys, old, new, words):
    """The message has the file, and what a build function must be."""
    Path("agent.py").write_text(Path("agent.py").read_text().replace(old, new))
    told = refused(capsys, VALIDATE)
    assert [word for word in words.split("|") if word not in told] == [], told


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("data/train.jsonl", "", "data/train.jsonl has no rows"),
        ("data/train.jsonl", '{"question": "1"\n', "data/train.jsonl cannot be read|line 1|not JSON"),
        ("data/train.jsonl", '{"question": "1 + 1", "solution": "2"}\n', "no column 'answer'|solution"),
        ("data/train.jsonl", '{"question": "", "answer": "2"}\n', "'question' is empty in row"),
        ("data/train.jsonl", '{"id": 1, "question": "1", "answer": "2"}\n' * 2, "ids are not unique"),
        ("data/train.csv", "prompt,answer\n1 + 1,2\n", "question_key 'question': no such column|'prompt'"),
        ("data/train.csv", "question,answer\n1,000,1\n", "line 2: 3 cells for 2 columns|double quotes"),
    ],
)
def test_a_mistake_in_the_data_names_the_line(project, capsys, file, text, words):
    """It is found before a model is loaded."""
    Path(file).write_text(text)
    options = f" -o eval.general.dataset '{yaml.safe_dump(CSV, default_flow_style=True).strip()}'"
    told = refused(capsys, TRAIN + (options if file.endswith("csv") else ""))
    assert [word for word in words.split("|") if word not in told] == [], told


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("finetune --config_file confg.yml", "'--config_file'|File 'confg.yml' does not exist"),
        (f"{TRAIN} --dataset data/trian.jsonl", "data/trian.jsonl' does not exist|Did you mean 'data/train.jsonl'"),
        (f"{TRAIN} -o finetuning.enabled false", "finetuning.enabled|not enabled"),
        (f"{VALIDATE} -o finetuning.epochs 3", "finetuning.epochs: unknown key|num_epochs"),
        (f"run --config_file config.yml --input 1 -o llms.student '{CLOSED}'", "base_url|no server answers"),
        ("runs show latest", "no run was started in this folder|--output_dir"),
        ("init data", "data is a folder with files in it|another name"),
        ("run --config_file config.yml", "give either --input or --input_file"),
    ],
)
def test_a_wrong_command_line_is_refused(project, capsys, command, words):
    """The message names what was given and the nearest that would work."""
    told = refused(capsys, command)
    assert [word for word in words.split("|") if word not in told] == [], told
