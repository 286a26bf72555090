"""All conditions, and the settings that their remedies name."""

import pytest

from nat.config.load import load_config
from nat.finetuning.diagnosis.catalogue import CONDITIONS

WORDS = {
    "LLM": "student",
    "BUILDER": "rollouts",
    "ADAPTER": "weights",
    "EVALUATOR": "judge",
    "MAX_TOKENS": "1024",
    "GENERATIONS": "16",
    "EPOCHS": "20",
    "MAX_KL": "0.1",
    "LEARNING_RATE": "1e-05",
}
BASE = """
llms:
  student: {_type: local, model: MODEL}
  other: {_type: openai, model_name: other, api_key: none}
workflow: {_type: service, llm: student, url: "http://127.0.0.1:9/run"}
eval:
  general: {dataset: {_type: jsonl, file_path: train.jsonl}}
  evaluators: {judge: {_type: relative_judge, llm_name: other, rubric: good}}
trajectory_builders: {rollouts: {_type: local_traj_builder, num_generations: 2, examples_per_epoch: 1}}
trainer_adapters: {weights: {_type: local_trainer_adapter, llm: student}}
trainers: {trainer: {_type: local_trainer}}
finetuning:
  enabled: true
  trainer: trainer
  trajectory_builder: rollouts
  trainer_adapter: weights
  reward_function: {name: judge}
  max_staleness: 1
"""


@pytest.mark.parametrize("condition", [each for each in CONDITIONS if each.settings], ids=lambda each: each.name)
def test_the_settings_of_a_remedy_are_valid(tmp_path, condition):
    """Pasted into a run's YAML under its own names, they make a configuration that is valid and another one."""
    base, changed = tmp_path / "base.yml", tmp_path / "changed.yml"
    base.write_text(BASE.replace("MODEL", str(tmp_path)))
    changed.write_text(f"base: base.yml\n{condition.settings_with(WORDS)}\n")
    assert load_config(changed) != load_config(base)


def test_words_that_a_run_does_not_tell_are_left_to_the_reader():
    """The word stays, in capitals."""
    truncation = next(each for each in CONDITIONS if each.name == "truncation")
    assert truncation.settings_with({}) == "llms: {LLM: {max_tokens: MAX_TOKENS}}"
