"""Agents that insert, edit, drop and repeat turns of the assistant: what is recorded is what was sampled."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fakes.llm_steps import assistant, call, steps, user
from nat.data_models.evaluator import EvalInputItem, EvalOutputItem
from nat.data_models.finetuning import TrajectoryCollection
from nat.finetuning.trajectories.calls import Target
from nat.finetuning.trajectories.outcome import scored
from nat.finetuning.trajectories.rows import training_groups
from nat.reports.conversation import rollout_text
from nat.runs.records import Phase
from nat.trajectory_files.formats import RowOptions, rows_of
from nat.trajectory_files.generations import group_of

ROLES = {"user": 1, "assistant": 2}
ANSWERS = ("", "a", "ab", "b")
"""Short ones, so that equal answers, answers that begin others, and edits that restore an answer are frequent."""


def insert(history, place):
    return [*history[:place], assistant("a"), *history[place:]]


def edit(history, place):
    return [*history[:place], history[place] | {"content": "b"}, *history[place + 1 :]]


def drop(history, place):
    return [*history[:place], *history[place + 1 :]]


def repeat(history, place):
    return [*history[: place + 1], *history[place:]]


@st.composite
def rollouts(draw):
    """The calls of an agent that changes its history before some of them; each has log probabilities of its own."""
    history, made = [user("q")], []
    for number in range(draw(st.integers(1, 6))):
        for change in draw(st.lists(st.sampled_from([insert, edit, drop, repeat]), max_size=2)):
            if history:
                history = change(history, draw(st.integers(0, len(history) - 1)))
        history = [*history, user(draw(st.sampled_from("xy")))] if draw(st.booleans()) or not history else history
        answer = draw(st.sampled_from(ANSWERS))
        made.append(answered(history, answer, number, exact=draw(st.integers(0, 5)) > 0))
        history = [*history, assistant(answer)]
    return made


def answered(history, answer, number, *, exact):
    prompt = [token for m in history for token in (ROLES[m["role"]], *map(ord, m["content"]))] + [ROLES["assistant"]]
    ids = (prompt, list(map(ord, answer))) if exact else (None, None)
    return call(history, answer, ids=ids, logprobs=[-(number + 1) / 8] * len(answer))


def outcome_of(calls, generation=0, reward=1.0):
    item = EvalInputItem(id="a", input_obj="", expected_output_obj="", output_obj="", trajectory=steps(*calls))
    score = EvalOutputItem(id="a", score=reward, reasoning=None)
    return scored(item, score, reward, generation=generation, target=Target(["<workflow>"]), metadata={}, facts={})


def known(made):
    """True if training can use the answer: its tokens are known, and there are some."""
    return bool(made.token_ids)


@given(rollouts())
def test_every_answer_is_recorded_where_it_was_sampled(calls):
    """Each answer is one message of one conversation, with its own tokens, after the prompt that the model saw."""
    record, found = outcome_of(calls)[0], Counter()
    for conversation in record.conversations:
        for answer in conversation.answers:
            span = record.span_of(answer)
            row = None if span is None else record.rows[answer.row].token_ids
            tokens = span and (*row[: span.stop], *span.logprobs)
            found[conversation.messages[answer.message]["content"], tokens] += 1
    expected = [
        (c.message["content"], (*c.prompt_token_ids, *c.token_ids, *c.logprobs) if known(c) else None) for c in calls
    ]
    assert found == Counter(expected)
    assert sum(len(row.spans) for row in record.rows) == sum(map(known, calls))


@given(rollouts())
def test_training_gets_every_sampled_token_once(calls):
    """The backend's rows are those of the record, in any order, and no inserted or edited turn is in a span."""
    made = outcome_of(calls)
    if any(map(known, calls)):
        [group] = training_groups(TrajectoryCollection(trajectories=[[made[1]]], run_id="r"))
        assert sorted(map(repr, group.rollouts[0].rows)) == sorted(map(repr, made[0].rows))
    sampled = Counter((x, tuple(c.token_ids)) for c in calls if known(c) for x in c.logprobs[:1])
    spans = [(row, span) for row in made[0].rows for span in row.spans]
    assert Counter((s.logprobs[0], tuple(row.token_ids[s.start : s.stop])) for row, s in spans) == sampled


@given(rollouts())
def test_a_page_marks_the_sampled_answers(calls):
    """As many as there were calls, each with the number of its tokens."""
    lines = rollout_text(outcome_of(calls)[0], Phase.TRAIN).splitlines()
    trained = any(map(known, calls))
    notes = Counter(line.partition("  [")[2].rstrip("]") for line in lines if line.startswith("assistant  ["))
    verb = "trained" if trained else "sampled"
    assert notes == Counter(f"{verb}, {len(c.token_ids)} tokens" if known(c) else verb for c in calls)


@given(rollouts(), rollouts())
def test_exported_rows_are_answers_to_their_prompts(calls, others):
    """With tokens: each labelled or compared answer was sampled, after the prompt that it was sampled with."""
    records = [outcome_of(calls)[0], outcome_of(others, generation=1, reward=0.0)[0]]
    group, _ = group_of("train", 0, "a", records)
    seen = {
        (tuple(c.prompt_token_ids), tuple(c.token_ids), tuple(c.logprobs)): c.message["content"]
        for c in (*calls, *others)
        if known(c)
    }
    for row in rows_of(group, RowOptions("kto", tokens=True)).rows:
        text = seen[tuple(row["prompt_ids"]), tuple(row["completion_ids"]), tuple(row["logprobs"])]
        assert row["completion"] == [{"role": "assistant", "content": text}]
    for row in rows_of(group, RowOptions("preference", tokens=True)).rows:
        for side in ("chosen", "rejected"):
            ids, logprobs = row[f"{side}_ids"], row[f"{side}_logprobs"]
            text = seen[tuple(row["prompt_ids"]), tuple(ids), tuple(logprobs)]
            assert row[side] == [{"role": "assistant", "content": text}]
    firsts = {prompt for prompt, _, _ in seen}
    for row in rows_of(group, RowOptions("grpo", tokens=True)).rows:
        assert tuple(row["prompt_ids"]) in firsts
        masked = zip(row["env_mask"], row["logprobs"], strict=True)
        assert all((logprob != 0) == bool(sampled) for sampled, logprob in masked)
