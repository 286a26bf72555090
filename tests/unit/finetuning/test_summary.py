from fakes.run_records import epoch_record, validation_record
from nat.data_models.finetuning import BudgetConfig
from nat.data_models.llm_usage import LLMUsage, PriceConfig
from nat.data_models.rollout_failure import FailureCount
from nat.finetuning.summary import choice, compared, phase_verdicts, summarise
from nat.runs.records import BestEpoch, BestMeasure, CommonAnswer, TrainingPhase, Verdict

BEFORE = {str(i): 0.0 for i in range(10)}
AFTER = {str(i): 1.0 for i in range(10)}


def test_the_first_and_the_last_validation_are_compared():
    """Validations in between do not count."""
    validations = [validation_record(0, BEFORE), validation_record(5, BEFORE), validation_record(8, AFTER)]
    found = compared(validations, 8)
    assert found is not None
    assert (found.before, found.after, found.verdict) == (0.0, 1.0, Verdict.IMPROVED)


def test_the_best_constant_answer_stands_beside_the_verdict():
    """It tells a collapsed model from one that has learned; where no expected answer repeats, there is none."""
    said = {}
    for share in (0.4, 0.1):
        expected = {"expected": CommonAnswer(text="billing", share=share)}
        validations = [
            validation_record(n, scores).model_copy(update=expected) for n, scores in enumerate((BEFORE, AFTER))
        ]
        said[share] = compared(validations, 1).sentence
    assert said[0.4].endswith(" The best constant answer, 'billing', would be right for 40%.")
    assert "constant" not in said[0.1]


def test_the_summary_has_the_cost_of_epochs_and_validations():
    """Without prices it has none, which is not zero."""
    used = {"rollout": {"gpt": LLMUsage(calls=3)}}
    epochs, held_out = [epoch_record(0, usage=used)], validation_record(0).model_copy(update={"usage": used})
    given = {"played": epochs, "validations": [held_out], "epochs": 1, "seconds": 9.0, "model": None}
    budget = BudgetConfig(prices={"gpt": PriceConfig(call=0.5)})
    assert summarise("r", None, [], **given, budget=budget).cost == 3.0
    assert summarise("r", None, [], **given).cost is None


def test_the_summary_adds_up_failures():
    """Failures are counted by cause with the first error; each rollout of training and validation counts."""
    raised = FailureCount(cause="the workflow raised an error", count=3, error="KeyError: 'city'")
    unscored = FailureCount(cause="the evaluator gave no score", count=1, error=None)
    epochs = [
        epoch_record(0, num_rollouts=10, failures=[raised]),
        epoch_record(1, num_rollouts=10, failures=[unscored, raised]),
    ]
    held_out = validation_record(0).model_copy(update={"failures": [unscored], "num_rollouts": 2})
    record = summarise("r", None, [], played=epochs, validations=[held_out], epochs=2, seconds=9.0, model=None)
    assert [(each.count, each.error) for each in record.failures] == [(6, "KeyError: 'city'"), (2, None)]
    assert (record.rollouts, record.failures_file) == (22, "failures.txt")


def test_a_phase_has_the_verdict_of_its_own_validations():
    """Without two of the same examples it has none."""
    phase = TrainingPhase(name="play", first_epoch=1, num_epochs=1)
    validations = [validation_record(0, AFTER), validation_record(1, BEFORE), validation_record(2, AFTER)]
    (verdict,) = phase_verdicts([phase], validations, 2)
    assert (verdict.verdict, verdict.num_failing_since, verdict.epochs) == (Verdict.IMPROVED, 0, 1)
    assert "play, epoch 2: Improved: 0.000 → 1.000" in str(verdict)
    (verdict,) = phase_verdicts([phase], [validations[0], validation_record(2, {"other": 1.0})], 2)
    assert str(verdict) == "play, epoch 2: no verdict"


def test_how_much_of_the_best_score_may_be_luck():
    """It is the highest of several validations; of one, nothing was chosen."""
    best, validations = (
        BestEpoch(epoch=1, score=0.9, measure=BestMeasure.HELD_OUT),
        [validation_record(0), validation_record(1)],
    )
    assert choice(best, validations, 3) == "the highest of 2 validations on the same examples, so probably too high"
    assert choice(best, validations[:1], 1) is None
