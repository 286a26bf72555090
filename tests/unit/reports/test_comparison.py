"""Two runs beside each other."""

import copy

from fakes.runs_on_disk import CONFIG, make_run
from nat.reports.comparison import compare_runs, comparison_page
from nat.runs.journal import Journal, reading
from nat.runs.records import RunState, Verdict


def compared(a, b):
    with reading(a) as first, reading(b) as second:
        return compare_runs(first, second)


def with_beta(value):
    config = copy.deepcopy(CONFIG)
    config["trainer_adapters"]["weights"]["training"]["beta"] = value
    return config


def test_the_same_examples_are_compared_in_pairs(tmp_path):
    """The verdict is that of a run's own before and after; settings that differ are listed."""
    result = compared(
        make_run(tmp_path, "a", solved=(2, 2)), make_run(tmp_path, "b", solved=(2, 9), config=with_beta(0.5))
    )
    assert result.held_out is not None
    assert result.held_out.comparison.verdict is Verdict.IMPROVED
    assert result.held_out.sentence.startswith("B scores higher than A: 0.200 → 0.900 on the same 10 held-out examples")
    assert result.warnings == []
    page = comparison_page(result)
    assert "trainer_adapters.weights.training.beta  0.02  0.5" in page
    assert "Held-out (A after epoch 1, B after epoch 1)" in page


def test_examples_that_fail_in_one_run_are_told(tmp_path):
    """The words are those of two runs, not of before and after."""
    a, b = make_run(tmp_path, "a", solved=(2, 9)), make_run(tmp_path, "b", solved=(2, 9))
    with Journal.open(b) as journal:
        last = journal.validations()[-1]
        failed = {name: None if score else score for name, score in last.scores.items()}
        journal.record(last.model_copy(update={"scores": failed}))
    result = compared(a, b)
    assert result.held_out.sentence.startswith("Cannot tell: 9 of 10 fail in B only")


def test_an_empty_setting_is_not_a_missing_one(tmp_path):
    """Only a key that a run does not have is shown as not set."""
    page = comparison_page(compared(make_run(tmp_path, "a"), make_run(tmp_path, "b", config=CONFIG | {"note": ""})))
    assert "note  (not set)\n" in page + "\n"
    page = comparison_page(compared(make_run(tmp_path, "c", config=CONFIG | {"note": "x"}), tmp_path / "b"))
    assert "(not set)" not in page


def test_other_examples_are_not_compared(tmp_path):
    """Without a common example there is no figure, and the page says why."""
    result = compared(make_run(tmp_path, "a"), make_run(tmp_path, "b", names=[f"other-{n}" for n in range(10)]))
    assert result.held_out is None
    assert "the runs have no held-out example in common" in comparison_page(result)


def test_examples_of_one_run_only_are_left_out_with_a_warning(tmp_path):
    """The common ones are compared."""
    names = [f"held-{n}" for n in range(8)]
    result = compared(make_run(tmp_path, "a"), make_run(tmp_path, "b", names=names))
    assert result.held_out is not None
    assert (result.held_out.comparison.num_examples, result.held_out.comparison.num_left_out) == (8, 0)
    assert "2 of 10 were in one run only" in result.warnings[0]


def test_the_same_ids_may_stand_for_other_examples(tmp_path):
    """Datasets that are numbered have the same ids; the questions tell them apart."""
    result = compared(make_run(tmp_path, "a"), make_run(tmp_path, "b", question="Other: {}"))
    assert "10 of the 10 common held-out examples ask another question" in result.warnings[0]


def test_another_score_makes_curves_incomparable(tmp_path):
    """Rewards of other evaluators measure something else."""
    config = copy.deepcopy(CONFIG)
    config["eval"]["evaluators"]["right"]["_type"] = "llm_judge"
    result = compared(make_run(tmp_path, "a"), make_run(tmp_path, "b", config=config))
    assert result.warnings == ["rewards in training may not be comparable, since eval.evaluators.right._type differ"]


def test_runs_without_results_can_be_compared(tmp_path):
    """A run that has only begun has settings; the page says what is missing."""
    begun = make_run(tmp_path, "a", solved=(), state=RunState.RUNNING)
    page = comparison_page(compared(begun, make_run(tmp_path, "b")))
    assert "held-out scores cannot be compared: A played no held-out examples" in page
    assert "A  a, interrupted" in page
    early = compared(make_run(tmp_path, "c", solved=(2,)), make_run(tmp_path, "d"))
    assert early.warnings == ["the last held-out scores of A are those before training"]
    both = compared(make_run(tmp_path, "e", solved=(2,)), make_run(tmp_path, "f", solved=(2,)))
    assert both.warnings == ["the last held-out scores of A and B are those before training"]


def test_phases_are_named_with_their_epochs(tmp_path):
    """The two runs may have spent the same number of epochs in other ways."""
    one = make_run(tmp_path, "a", phases=["file", "play", "play"])
    page = comparison_page(compared(one, make_run(tmp_path, "b")))
    assert "epochs 3/3 (file 1, play 2)" in page
    assert "0.400 → 0.500" in page
    assert "0.300 → 0.500" in page
