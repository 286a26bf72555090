"""TTC_END steps as a workflow pushes them."""

from nat.data_models.intermediate_step import IntermediateStep, IntermediateStepPayload, TTCEventData
from nat.data_models.invocation_node import InvocationNode

STEP = "dpo_candidate_move"


def candidate(score, output="an answer", *, prompt="a prompt", turn="t0", index=None, **fields):
    """The step of one candidate."""
    data = TTCEventData(turn_id=turn, candidate_index=index, score=score, input=prompt, output=output)
    return step(data=data, **fields)


def step(event_type="TTC_END", *, name=STEP, function="<workflow>", **payload):
    node = InvocationNode(function_id=function, function_name=function)
    whole = IntermediateStepPayload(event_type=event_type, name=name, **payload)
    return IntermediateStep(parent_id="root", function_ancestry=node, payload=whole)
