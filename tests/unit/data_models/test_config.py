"""What the whole configuration decides where its parts say nothing."""

import pytest

from nat.config import parse_config
from nat.config.sources import parse_yaml

LOCAL = "student: {_type: local, model: a-model, max_num_seqs: 48}"
REMOTE = "judge: {_type: openai, model_name: gpt, api_key: k}"
PROGRAM = "workflow: {_type: command, llm: student, command: run}"


@pytest.mark.parametrize(
    ("llms", "rest", "expected"),
    [
        ([LOCAL], "", 48),
        ([LOCAL, REMOTE], "", 8),
        ([], "", 8),
        ([LOCAL], PROGRAM, 8),
        ([LOCAL], "functions: {inner: {_type: command, llm: student, command: run}}", 8),
        ([LOCAL], "eval: {general: {max_concurrency: 3}}", 3),
        ([LOCAL, REMOTE], "eval: {general: {max_concurrency: 30}}", 30),
    ],
)
def test_as_many_rollouts_at_a_time_as_all_parts_suit(llms, rest, expected):
    """Local models take `max_num_seqs` rollouts at a time; unknown servers and programs 8; the user's number holds."""
    text = "\n".join(["llms:", *(f"  {llm}" for llm in llms), rest]) if llms else "imports: []"
    assert parse_config(parse_yaml(text), environ={}).eval.general.max_concurrency == expected
