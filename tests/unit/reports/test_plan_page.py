"""The page with which `nat finetune --dry_run` ends."""

from pathlib import Path

from fakes.forecasts import FORECAST, SPEED
from nat.data_models.finetuning import BudgetConfig
from nat.data_models.llm_usage import PriceConfig
from nat.data_models.ray_rollouts import RayRollouts
from nat.finetuning.dry_run import FinetunePlan
from nat.finetuning.proposals import Proposal
from nat.reports.plan_page import plan_text
from nat.sizing.forecast import Card
from nat.sizing.load import RolloutLoad
from nat.sizing.memory import PredictedMemory

LOAD = RolloutLoad(calls=2.5, row_tokens=300, sampled_tokens=100, longest_row=400, basis="in run r", seconds=4)
PLAN = FinetunePlan(
    trainer="t",
    trajectory_builder="b",
    trainer_adapter="a",
    reward="match",
    target_functions=["<workflow>"],
    target_model="student",
    llms={"student": "somewhere"},
    num_epochs=10,
    num_examples=50,
    num_generations=8,
    max_concurrency=4,
    num_held_out=40,
    validation_interval=5,
    output_dir=Path("runs"),
    warnings=["beware"],
    config_text="secret_key_of_yaml: 1",
    rollouts_per_epoch=80,
    judges=["judge"],
    load=LOAD,
    forecast=FORECAST,
    smallest_improvement=0.15,
    smallest_with_changes=0.25,
)


def lines(**changes) -> list[str]:
    return [" ".join(line.split()) for line in plan_text(PLAN.model_copy(update=changes)).splitlines()]


def test_amounts():
    """Rollouts, calls and judge calls, per epoch and in all, with three validations of 40 examples."""
    found = lines()
    assert "Rollouts 80 per epoch, from 50 examples, 4 at a time" in found
    assert "920 in all: 800 of epochs and 120 of validations" in found
    assert "LLM calls 200 per epoch, 2,300 in all" in found
    assert "Judge calls 80 per epoch, 920 in all (one per rollout by judge)" in found
    assert "Tokens 300 per rollout, 100 of them sampled: in run r" in found
    assert "secret_key_of_yaml" not in "".join(found)


def test_a_budget_has_its_limit_and_the_llms_with_a_price():
    """What the run will cost is not known before it has called them."""
    budget = BudgetConfig(prices={"judge": PriceConfig(call=1), "teacher": PriceConfig(call=2)})
    assert "Budget calls of judge, teacher have a price" in lines(budget=budget)
    limited = budget.model_copy(update={"limit": 20.5})
    assert "Budget ends before 20.5 is exceeded; calls of judge, teacher have a price" in lines(budget=limited)
    assert not any(line.startswith("Budget") for line in lines())


def test_memory_of_all_weights_and_of_adapters():
    """A row for each part, the sum, the longest row, and what there is."""
    found = lines()
    assert "Memory predicted, at the peak all weights LoRA, rank 16" in found
    assert "weights 4.0 GB 4.0 GB" in found
    assert "gradients 4.0 GB 0 MB" in found
    assert "together 8.0 GB 4.0 GB" in found
    assert "longest row here (400 planned) does not fit 2,048 tokens" in found
    assert "the machine has 16.0 GB, of which 9.0 GB are free for this" in found
    assert not any(line.startswith("activations") for line in found)


def test_what_goes_where():
    """The devices of the learner and of what samples, those of each role, and the machines that play rollouts."""
    several = FORECAST.model_copy(
        update={
            "places": ("one: trains on cuda:0; samples on cuda:0", "other: trains on cuda:1; samples on cuda:1"),
            "memory": [PredictedMemory(title="LoRA, rank 16", parts={"one": 8 * 10**9}, total=8 * 10**9)],
            "cards": {"cuda:1": Card(needs=5 * 10**9, room=4 * 10**9)},
        }
    )
    rollouts = RayRollouts(workers=3)
    found = lines(forecast=several, rollouts=rollouts, nodes={"10.0.0.1": 1, "10.0.0.2": 2})
    at = found.index("Place one: trains on cuda:0; samples on cuda:0")
    assert found[at + 1] == "Place other: trains on cuda:1; samples on cuda:1"
    assert "one 8.0 GB" in found
    assert "cuda:1 trains, too: 5.0 GB of 4.0 GB, which does not fit" in found
    played = "in 3 processes on Ray (auto): 1 on 10.0.0.1, 2 on 10.0.0.2"
    assert f"Rollouts 80 per epoch, from 50 examples, 4 at a time, {played}" in found


def test_no_time_before_a_rollout_was_played():
    """A figure from an assumption would be far off; the speed is shown all the same."""
    found = lines(load=LOAD.model_copy(update={"seconds": None, "assumed": True}))
    assert "Time not known before a rollout was played: `nat probe` plays some, in at most three minutes" in found
    assert any(line.startswith("measured here for 4 s, with 4 chats: ") for line in found)
    slow = FORECAST.model_copy(update={"speed": SPEED.model_copy(update={"chats": 0})})
    assert "measured here for 4 s, 500 trained tokens per second" in lines(forecast=slow)


def test_time_as_it_was_measured():
    """Rollouts as in a probe, updates as in a run, and all of it with 120 rollouts of validations."""
    found = lines()
    assert "Time 6 min 10 s per epoch: rollouts 5 min 20 s, training 50 s (rollouts in run r)" in found
    assert "1 h 9 min in all, with validations and without loading and saving the model" in found
    run = lines(load=LOAD.model_copy(update={"update_seconds": 1.0}), forecast=None)
    assert any(line.endswith("training 1 min 20 s (rollouts and training in run r)") for line in run)


def test_proposals_have_the_yaml_to_paste():
    """One line says what was seen, the next what to paste; a proposal of two phases stands once."""
    proposal = Proposal("llms.student.max_tokens is not set: seen", "llms: {student: {max_tokens: 24}}")
    for changes in ({"proposals": [proposal]}, {"phases": 2 * [PLAN.model_copy(update={"proposals": [proposal]})]}):
        found = lines(**changes)
        at = found.index("Proposal llms.student.max_tokens is not set: seen")
        assert found[at + 1] == "paste llms: {student: {max_tokens: 24}}"
        assert found.count(found[at]) == 1


def test_what_the_held_out_examples_can_show():
    """The smallest rise for scores of 0 and 1; nothing with too few examples."""
    assert any("a rise of the mean by +0.15 or more if no example gets worse; +0.25 if half" in x for x in lines())
    few = lines(num_held_out=5, smallest_improvement=None, smallest_with_changes=None)
    assert "Can show nothing: a verdict takes at least 6 held-out examples" in few
    assert "Held-out none (no verdict without a validation dataset)" in lines(num_held_out=None)


def test_a_load_that_is_assumed_is_the_least():
    """Before the first run nobody knows how often an agent calls the model."""
    found = lines(load=LOAD.model_copy(update={"assumed": True, "seconds": None}))
    assert "LLM calls at least 200 per epoch, 2,300 in all" in found


def test_what_is_not_known():
    """A backend elsewhere tells no memory, and a builder of one's own no number of rollouts."""
    found = lines(forecast=None, rollouts_per_epoch=None)
    assert "Rollouts chosen by the builder" in found
    assert "Time not measured" in found
    assert any(line.startswith("Memory not known") for line in found)
    assert "Memory not known: the model's configuration lacks the sizes of its layers" in lines(
        forecast=FORECAST.model_copy(update={"memory": []})
    )
