"""Runs on disk for tests about what `nat runs` shows."""

from pathlib import Path

import yaml

from fakes.run_records import NOON, epoch_record, rollout_record, validation_record
from fakes.training_rows import row_of
from nat.runs.journal import Journal
from nat.runs.records import BestEpoch, BestMeasure, Phase, RunState, TrainingPhase
from nat.runs.rollouts import Answer, Beginning, Conversation, LeftOutCause

CONFIG = {
    "llms": {"student": {"_type": "local", "model": "models/small"}},
    "trainer_adapters": {"weights": {"_type": "local_trainer_adapter", "llm": "student", "training": {"beta": 0.02}}},
    "eval": {"evaluators": {"right": {"_type": "exact_match"}}},
    "finetuning": {"num_epochs": 3, "trainer_adapter": "weights", "reward_function": {"name": "right"}},
}
EVIL = "\x1b[2J\x1b]0;owned\x07\u202eevil\x9b31m\r"
"""Clears the screen, sets the window's title, reverses text, and returns to the line's beginning."""


def make_run(
    root: Path, run_id: str, *, solved=(2, 6, 7, 8), config=CONFIG, state=RunState.COMPLETED, **changes
) -> Path:
    """A run of some epochs with ten held-out examples, of which it solves so many after each.

    `phases` names the phase of each epoch; one whose name is `file` plays nothing.
    """
    phases = changes.get("phases", [None] * (len(solved) - 1))
    run_dir = root / run_id
    run_dir.mkdir(parents=True)
    with Journal.create(run_dir, run_id, yaml.safe_dump(config), created_at=NOON) as journal:
        for epoch, count in enumerate(solved):
            names = changes.get("names", [f"held-{n}" for n in range(10)])
            journal.record(validation_record(epoch, {name: float(n < count) for n, name in enumerate(names)}))
            questions = changes.get("question", "What is {}?")
            journal.record_rollouts(
                Phase.VALIDATION,
                epoch,
                [conversation(name, float(n < count), questions.format(name)) for n, name in enumerate(names)],
            )
        for epoch in range(len(solved) - 1):
            metrics = {"time/rollout": 6.0, "time/train": 3.0, "train/approx_kl": 0.01, "train/loss": 0.25}
            left_out = {"its group has no difference in reward": 8}
            if phases[epoch] not in {None, *phases[:epoch]}:
                count = phases.count(phases[epoch])
                journal.record(TrainingPhase(name=phases[epoch], first_epoch=epoch, num_epochs=count))
            fields = {
                "metrics": metrics,
                "left_out": left_out,
                "phase": phases[epoch],
                "played": phases[epoch] != "file",
            }
            journal.record(epoch_record(epoch, 0.3 + epoch / 10, num_rollouts=192, **fields))
            journal.record_rollouts(Phase.TRAIN, epoch, training_rollouts())
        journal.record(BestEpoch(epoch=3, score=0.8, measure=BestMeasure.HELD_OUT, checkpoint="checkpoints/step_3"))
        journal.set_state(state, at=NOON, message=changes.get("message"))
    return run_dir


def thread(messages, *answers, **fields):
    """A conversation with its answers at these places, whose tokens are the spans of the first row."""
    known = [Answer(message=place, row=0, span=number) for number, place in enumerate(answers)]
    return Conversation(**{"began": Beginning.FIRST, "messages": messages, "answers": known} | fields)


def conversation(example_id, reward, question="What is 2 + 2?", answer="4", **changes):
    """A question and its answer, of which the row has two sampled tokens."""
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    row = row_of([1, 2, 3, 4], [None, None, -0.5, -0.1])
    fields = {
        "conversations": [thread(messages, 1)],
        "rows": [row],
        "num_calls": 1,
        "question": question,
        "expected": "4",
        "output": answer,
    }
    return rollout_record(example_id, **({"reward": reward} | fields | changes))


def training_rollouts():
    """Good and bad ones, one left out, one failed, and one with tool calls and hostile text."""
    tools = [
        {"role": "system", "content": "Use the tools."},
        {"role": "user", "content": "Weather in Rome?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": f"21 degrees{EVIL}"},
        {"role": "assistant", "content": f"It is mild.{EVIL}"},
    ]
    row = row_of(range(8), [None, None, -1.0, None, None, -1.0, -1.0, -1.0])
    return [
        conversation("a", 1.0, generation=0),
        conversation("a", 0.25, answer="5", generation=1),
        conversation("b", 0.5, answer="22", reasoning={"expected": "4"}, left_out=LeftOutCause.NO_REWARD_DIFFERENCE),
        rollout_record("c", reward=None, left_out=LeftOutCause.FAILED, error="KeyError: 'city'"),
        rollout_record(
            "d",
            reward=0.75,
            conversations=[thread(tools, 2, 4)],
            rows=[row],
            num_calls=2,
        ),
    ]
