"""Rollouts as turns; tests/unit/reports/test_rollouts.py has them as text."""

from fakes.run_records import rollout_record
from fakes.runs_on_disk import thread, training_rollouts
from nat.reports.conversation import conversations, remarks
from nat.runs.records import Phase


def test_a_turn_has_thinking_text_and_calls():
    """In this order, each named by its field or its tool; malformed calls are shown as they are."""
    message = {
        "role": "assistant",
        "content": [{"type": "text", "text": "It"}, {"type": "image"}],
        "reasoning_content": "Let me see.",
        "tool_calls": [{"id": "c1", "function": {"name": "weather", "arguments": {"city": "Rome"}}}, 7],
    }
    record = rollout_record(conversations=[thread([message], 0)])
    ((turn,),) = [each.turns for each in conversations(record, Phase.TRAIN)]
    assert [(part.kind, part.label, part.text) for part in turn.parts] == [
        ("thinking", "(reasoning_content)", "Let me see."),
        ("text", "", "It\n(image)"),
        ("call", "calls weather c1", '{"city": "Rome"}'),
        ("call", "", "7"),
    ]


def test_what_was_left_out_is_remarked():
    """By function and cause, as the record has it."""
    record = rollout_record(
        untrainable_calls={"judge": {"temperature 0": 2}},
        lost_calls={"cut_off": 1},
        broken_by={"dropped_reasoning": 1},
        truncated=True,
        num_failed_calls=3,
    )
    assert remarks(record) == [
        "the journal has no tokens of this rollout",
        "not trained: 2 calls of judge, sampled with temperature 0",
        "1 tool call could not be used: cut_off",
        "1 call began a new row: dropped_reasoning",
        "3 calls got no answer",
        "an answer reached its token limit",
    ]
    assert remarks(training_rollouts()[0]) == []
