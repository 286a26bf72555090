"""The tasks of examples/real that need more packages than ours: their data is made and their agents are scored."""

import json
import subprocess

import pytest
from conformance.environments import REPOSITORY, outside, python_of
from examples.real.packages import Unavailable, model
from examples.real.rows import NUM_HELD_OUT, NUM_TRAIN

REAL = REPOSITORY / "examples" / "real"
DEADLINE_S = 600
NUM_ROWS = 4


def said(task, *command):
    """The output of a program of the tasks' environment, which must succeed in the task's folder."""
    done = subprocess.run(
        [python_of("real"), *command],
        cwd=REAL / task,
        env=outside() | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("task", ["puzzle", "conversation"])
def test_the_agent_of_a_task_is_scored(task, tmp_path):
    """The generator gives the same rows each time; the answers of the real model to some of them get scores."""
    try:
        model()
    except Unavailable as error:
        pytest.skip(f"the model cannot be fetched: {error}")
    files = [REAL / task / "data" / f"{split}.jsonl" for split in ("train", "held_out")]
    made = []
    for _ in range(2):
        said(task, "-m", f"examples.real.{task}.make_data")
        made.append([file.read_text().splitlines() for file in files])
    assert made[0] == made[1]
    asked = [{json.loads(line)["question"] for line in lines} for lines in made[0]]
    assert [len(questions) for questions in asked] == [NUM_TRAIN, NUM_HELD_OUT]
    assert asked[0].isdisjoint(asked[1])
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(made[0][1][:NUM_ROWS]))
    options = ("-o", "llms.student.threads", "1", "--dataset", str(few), "--json")
    run = ("from nat.cli.main import run_cli; run_cli()", "eval", "--config_file=config.yml", *options)
    report = json.loads(said(task, "-c", *run))
    (right,) = report["evaluators"]
    assert right["scored"] == NUM_ROWS
    assert 0 <= right["average_score"] <= 1
