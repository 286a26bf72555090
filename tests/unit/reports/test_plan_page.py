"""The page with which `nat finetune --dry_run` ends."""

from pathlib import Path

from fakes.finetuning_project import forecast_with
from nat.data_models.evaluate import RayRollouts
from nat.data_models.finetuning import BudgetConfig, FinetuneConfig
from nat.data_models.llm_usage import PriceConfig
from nat.finetuning.dry_run import FinetunePlan, PlannedStage
from nat.reports.plan_page import plan_text

STAGE = PlannedStage(
    phase=None,
    trainer="t",
    trajectory_builder="b",
    trainer_adapter="a",
    num_epochs=10,
    num_generations=8,
    rollouts_per_epoch=80,
    num_validations=3,
    forecast=forecast_with(),
)
FINETUNING = FinetuneConfig(reward_function={"name": "match"}, target_model="student", output_dir=Path("runs"))
PLAN = FinetunePlan(
    stages=[STAGE],
    finetuning=FINETUNING,
    llms={"student": "somewhere"},
    num_examples=50,
    max_concurrency=4,
    num_held_out=40,
    validation_interval=5,
    free_disk=40 * 10**9,
    warnings=["beware"],
    config_text="secret_key_of_yaml: 1",
    judges=["judge"],
    smallest_improvement=0.15,
)


def lines(**changes) -> list[str]:
    return [" ".join(line.split()) for line in plan_text(PLAN.model_copy(update=changes)).splitlines()]


def with_forecast(**changes) -> list[PlannedStage]:
    return [STAGE.model_copy(update={"forecast": forecast_with(**changes)})]


def test_amounts():
    """Rollouts and judge calls, per epoch and in all, with three validations of 40 examples."""
    found = lines()
    assert "Rollouts 80 per epoch, from 50 examples, 4 at a time" in found
    assert "In all 920 rollouts: 800 of epochs and 120 of validations" in found
    assert "Judge calls 920 (one per rollout by judge)" in found
    assert "secret_key_of_yaml" not in "".join(found)


def test_a_budget_has_its_limit_and_the_llms_with_a_price():
    """What the run will cost is not known before it has called them."""

    def with_budget(budget):
        return FINETUNING.model_copy(update={"budget": budget})

    budget = BudgetConfig(prices={"judge": PriceConfig(call=1), "teacher": PriceConfig(call=2)})
    assert "Budget calls of judge, teacher have a price" in lines(finetuning=with_budget(budget))
    limited = budget.model_copy(update={"limit": 20.5})
    assert "Budget ends before 20.5 is exceeded; calls of judge, teacher have a price" in lines(
        finetuning=with_budget(limited)
    )
    assert not any(line.startswith("Budget") for line in lines())


def test_the_disk_that_a_run_takes():
    """Checkpoints and model, what is needed while one is written, and what is free."""
    found = lines(stages=with_forecast(disk=33 * 10**8, checkpoint=16 * 10**8))
    assert any(line.startswith("Disk 3.3 GB") and "1.6 GB more while a checkpoint is written" in line for line in found)
    assert "Output runs, where 40.0 GB are free" in found


def test_memory_of_each_way_to_train():
    """What it takes, and whether it fits into what is free."""
    found = lines(stages=with_forecast(available=3 * 10**9))
    assert "Memory 3.0 GB may be taken; 4 chats at a time, rows of 512 tokens; predicted, to some 20 %" in found
    assert "all weights, float32 8.0 GB does not fit, 5.0 GB too much" in found
    assert "LoRA, rank 16, float32 2.0 GB fits, 1.0 GB to spare" in found


def test_what_goes_where():
    """The devices of the learner and of what samples, and the machines that play rollouts."""
    found = lines(
        finetuning=FINETUNING.model_copy(update={"rollouts": RayRollouts(workers=3)}),
        nodes={"10.0.0.1": 1, "10.0.0.2": 2},
    )
    assert "Place trains on cpu; samples on cpu" in found
    played = "in 3 processes on Ray (auto): 1 on 10.0.0.1, 2 on 10.0.0.2"
    assert f"Rollouts 80 per epoch, from 50 examples, 4 at a time, {played}" in found


def test_what_the_held_out_examples_can_show():
    """The smallest rise for scores of 0 and 1; nothing with too few examples."""
    assert any("a rise of the mean by +0.15 or more if no example gets worse" in x for x in lines())
    few = lines(num_held_out=5, smallest_improvement=None)
    assert "Can show nothing: a verdict takes at least 6 held-out examples" in few
    assert "Held-out none (no verdict without a validation dataset)" in lines(num_held_out=None)
