"""What pages show, from a journal."""

import pytest

from fakes.run_records import epoch_record, rollout_record
from fakes.runs_on_disk import conversation, make_run
from fakes.tiny_model import tiny_tokenizer
from fakes.training_rows import row_of
from nat.dashboard.views import (
    Links,
    epoch_view,
    held_out_rows,
    paged,
    rewards_view,
    run_view,
    tokens_view,
)
from nat.data_models.llm_usage import LLMUsage
from nat.runs.journal import Journal, reading
from nat.runs.records import Phase, ValidationRecord
from nat.runs.rollouts import Outcome

LINKS = Links("/runs/r")


def test_addresses_count_epochs_as_people_do():
    """From 1; a validation has the number of epochs before it. Whatever an example is called, it stays in its place."""
    assert LINKS.epoch(Phase.TRAIN, 0) == "/runs/r/train/1"
    assert LINKS.epoch(Phase.VALIDATION, 0) == "/runs/r/validation/0"
    hostile = LINKS.rollout(Phase.TRAIN, 1, "a&b=\ud800/..", 3)
    assert hostile == "/runs/r/train/2/rollout?id=a%26b%3D%5Cud800%2F..&generation=3"


@pytest.mark.parametrize(("wanted", "given"), [(0, 1), (1, 1), (3, 3), (4, 3), (10**9, 3)])
def test_a_page_that_is_not_there_is_the_nearest(wanted, given):
    """Of 25 items in tens there are three pages."""
    assert paged(wanted, 10, 25).number == given


def test_many_groups_have_pages(tmp_path):
    """Each has fifty examples, in their order; only their rollouts are read."""
    run_dir = make_run(tmp_path, "run-1")
    records = [rollout_record(f"e{number}", generation) for number in range(120) for generation in range(2)]
    with Journal.open(run_dir) as journal:
        journal.record_rollouts(Phase.TRAIN, 5, records)
        view = epoch_view(journal, LINKS, Phase.TRAIN, 5, 3)
    assert [row.group.example_id for row in view.rows] == [f"e{number}" for number in range(100, 120)]
    assert (view.rollouts, view.page.total, view.page.last) == (240, 120, 3)


def test_the_colour_of_a_cell_is_its_place_between_the_rewards(tmp_path):
    """Rewards from 0 to 1 are shown on that range."""
    with reading(make_run(tmp_path, "run-1")) as journal:
        rows = epoch_view(journal, LINKS, Phase.TRAIN, 0, 1).rows
    shades = {cell.outcome.reward: cell.shade for row in rows for cell in row.cells}
    assert shades == {1.0: "g10", 0.25: "g2", 0.5: "g5", 0.75: "g8", None: "none"}


def test_what_was_left_out_is_counted_beside_the_histogram():
    """By cause, and rollouts without a reward have no bar."""
    outcomes = [Outcome("a", n, reward, None if n else "failed") for n, reward in enumerate([None, 0.0, 1.0, 1.0])]
    view = rewards_view(outcomes)
    assert (len(view.chart.x), view.without, list(view.left_out)) == (2, 1, [("failed", 1)])


def test_a_run_shows_the_epoch_that_is_under_way(tmp_path):
    """Its rollouts are recorded before its update ends."""
    run_dir = make_run(tmp_path, "run-1")
    with Journal.open(run_dir) as journal:
        before = run_view(journal, LINKS)
        journal.record_rollouts(Phase.TRAIN, 3, [rollout_record()])
        after = run_view(journal, LINKS)
    assert (before.progress.unfinished, after.progress.unfinished) == (None, 3)
    assert before.progress.seen != after.progress.seen


def test_a_run_shows_what_its_calls_took(tmp_path):
    """As its page in the terminal does."""
    with Journal.open(make_run(tmp_path, "run-1")) as journal:
        journal.record(epoch_record(3, usage={"judge": {"gpt": LLMUsage(calls=2, prompt_tokens=7)}}))
        assert run_view(journal).calls[:1] == [("Calls", "training, evaluators: 2 of gpt, 7 + 0 tokens")]


def test_points_of_the_curve_lead_to_rollouts_that_there_are(tmp_path):
    """Epochs to their training rollouts, and the beginning to the held-out examples."""
    with reading(make_run(tmp_path, "run-1", solved=(1, 2))) as journal:
        assert list(run_view(journal, LINKS).curve.links) == ["/runs/r/validation/0", "/runs/r/train/1"]


def test_tokens_have_their_text_where_the_tokenizer_lies(tmp_path):
    """Several tokens of one character are one."""
    run_dir = make_run(tmp_path, "run-1")
    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(run_dir / "model")
    ids = tokenizer("é yes")["input_ids"]
    record = conversation("x", 1.0, rows=[row_of(ids, [None] + [-1.0] * (len(ids) - 1))])
    with reading(run_dir) as journal:
        view = tokens_view(journal, record)
    assert "".join(token.text for token in view.rows[0].tokens) == "é yes"
    assert view.problem is None


def test_held_out_examples_that_fell_come_first():
    """One without a score at either time comes last."""
    before, after = (
        ValidationRecord(epoch=0, timestamp="2026-01-01T00:00:00Z", scores=scores)
        for scores in ({"up": 0.0, "down": 1.0, "same": 0.5, "gone": 0.5}, {"up": 1.0, "down": 0.0, "same": 0.5})
    )
    rows = held_out_rows(before, after)
    assert [(row.example_id, row.difference) for row in rows] == [("down", -1), ("same", 0), ("up", 1), ("gone", None)]
