import pytest

from fakes.llm_steps import call, steps, user
from nat.finetuning.trajectories.calls import calls_of
from nat.finetuning.trajectories.select import select
from nat.runs.left_out import LeftOutCause

PLAN = call([user("plan")], "p", llm_name="big", model="gpt")
MOVE = call([user("move")], "m", llm_name="student", model="tiny")
SEEN = calls_of([*steps(PLAN, function="planner"), *steps(MOVE)])


def chosen(functions, model=None):
    return [s.call for s in select(SEEN, target_functions=functions, target_model=model).calls]


def test_the_workflow_as_target_means_every_call_in_it():
    """`<workflow>`, the default, trains on all calls, those of nested functions included."""
    assert chosen(["<workflow>"]) == [PLAN, MOVE]


def test_a_named_function_means_its_own_calls():
    """Only calls that the named function makes itself are kept."""
    assert chosen(["planner"]) == [PLAN]


@pytest.mark.parametrize("name", ["student", "tiny"])
def test_the_target_model_is_a_yaml_key_or_a_model_name(name):
    """Both names of an LLM select its calls."""
    assert chosen(["<workflow>"], name) == [MOVE]


def test_a_function_that_was_never_seen_is_the_cause():
    """The cause tells a wrong function name from a wrong model name."""
    assert select(SEEN, target_functions=["typo"], target_model=None).cause is LeftOutCause.NO_TARGET_FUNCTION
    assert select(SEEN, target_functions=["planner"], target_model="tiny").cause is LeftOutCause.NO_TARGET_MODEL
    assert select([], target_functions=["<workflow>"], target_model=None).cause is LeftOutCause.NO_TARGET_FUNCTION


def test_calls_without_logprobs_are_left_out_and_counted():
    """A call without logprobs cannot be trained on; without any other call that is the cause."""
    silent = call([user("x")], "y", logprobs=None)
    both = calls_of(steps(silent, MOVE))
    some = select(both, target_functions=["<workflow>"], target_model=None)
    assert ([s.call for s in some.calls], some.without_logprobs, some.cause) == ([MOVE], 1, None)
    none = select(both[:1], target_functions=["<workflow>"], target_model=None)
    assert (none.calls, none.cause) == ((), LeftOutCause.NO_LOGPROBS)


def test_a_model_that_was_redirected_answers_to_both_names():
    """The YAML says the base model, the request the model that is trained; either names the target."""
    seen = calls_of(steps(call([user("x")], "y", llm_name="student", model="my_run", asked_model="base")))
    for name in ("student", "my_run", "base"):
        assert select(seen, target_functions=["<workflow>"], target_model=name).cause is None


def test_bent_calls_are_left_out_and_kept_apart():
    """Greedy calls are no sample of what is trained; others of the rollout are trained on. A temperature is fine."""
    greedy = call([user("g")], "g", untrainable_by=["temperature=0"])
    cold = call([user("c")], "c", temperature=0.4, logprobs_temperature=0.4)
    mixed = select(calls_of(steps(greedy, cold)), target_functions=["<workflow>"], target_model=None)
    assert [s.call for s in mixed.calls] == [cold]
    assert [s.call for s in mixed.untrainable] == [greedy]
    alone = select(calls_of(steps(greedy)), target_functions=["<workflow>"], target_model=None)
    assert (alone.cause, len(alone.untrainable)) == (LeftOutCause.UNTRAINABLE_SAMPLING, 1)
    silent = call([user("s")], "s", logprobs=None)
    neither = select(calls_of(steps(greedy, silent)), target_functions=["<workflow>"], target_model=None)
    assert neither.cause is LeftOutCause.NO_LOGPROBS
