"""Play one example before any model is loaded: a script answers the calls, and everything else is real."""

from itertools import repeat

from nat.builder.workflow import Workflow
from nat.builder.workflow_builder import WorkflowBuilder
from nat.capture.context import CapturePolicy
from nat.config.components import asks_llms
from nat.data_models.config import Config
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.function import EmptyFunctionConfig
from nat.data_models.score import score_problem
from nat.errors import EvaluationError, WorkflowError
from nat.eval.evaluate import answer_path, played, score_items
from nat.registry.catalog import current_catalog
from nat.rollout.rollout import run_rollout
from nat.rollout.script import SECONDS, Say, serving
from nat.secrets import excerpt
from nat.wire.json import text_or_json

REHEARSING = "playing one example with a script as the model"
_MOST_CALLS = 32
_OTHER_FORM = "The model was a script that said {!r}: if that is no answer in the agent's form, there is no mistake."
_NOT_ASKED = (
    "The agent asked no model of this file: calls by a client of its own are not captured, and that model is not "
    "trained. Take the model from `builder.get_llm(config.llm, wrapper_type=…)`."
)


async def rehearse(config: Config, item: EvalInputItem | None, *, result_json_path: str = "$") -> list[str]:
    """Build the workflow, play the example, and score it; gives what may be a mistake, in whole sentences.

    The script says the example's expected answer. What fails before it was asked is certainly a mistake, and so is an
    evaluator that cannot score that answer. Judges, and evaluators that compare generations, are built alone.

    Raises:
        NatError: a component cannot be built, the agent cannot take the example, or the answer has no score.

    """
    if isinstance(config.workflow, EmptyFunctionConfig):
        return []
    clients = current_catalog().llm_clients.values()
    types = {name: str(llm.static_full_type()) for name, llm in config.llms.items()}
    own = [n for n, kind in types.items() if not kind.startswith("nat/") and any(kind in each for each in clients)]
    if own:
        return [f"No example was played: llms.{', '.join(own)} has clients of a plug-in, which a script cannot serve."]
    expected = None if item is None else item.expected_output_obj
    said = "ok" if expected is None else text_or_json(expected)
    with serving(repeat(Say(said), _MOST_CALLS)) as server:
        async with WorkflowBuilder.from_config(server.replacing_llms(config)) as builder:
            if item is None:
                return []
            limit, general = min(config.eval.general.item_timeout or SECONDS, SECONDS), config.eval.general
            workflow = Workflow(builder.get_workflow())
            rollout = await run_rollout(workflow, item, seed=None, policy=CapturePolicy(), deadline=limit)
            answered, failure = played(item, rollout, answer_path(result_json_path))
            other_form = _OTHER_FORM.format(excerpt(said, 40))
            if failure is not None:
                seen = f"the workflow failed on the example '{item.id}': {failure}"
                if failure.kind == "raised" and not server.requests:
                    raise WorkflowError(seen, hint="no model was asked before; `nat run` shows the traceback")
                return [f"{seen[0].upper()}{seen[1:]}. {other_form}"]
            notes = [] if server.requests else [_NOT_ASKED]
            for name, evaluator in config.eval.evaluators.items():
                if evaluator.compares_generations or asks_llms(evaluator):
                    continue
                output = await score_items(name, builder.get_evaluator(name), [answered], general)
                score = output.eval_output_items[0]
                if problem := score.error or score_problem(score.score):
                    seen = f"eval.evaluators.{name}: the answer {excerpt(repr(answered.output_obj), 80)} has no score"
                    if score.error and expected is not None:
                        raise EvaluationError(f"{seen}: {problem}", hint=f"the example is '{item.id}'")
                    notes.append(f"{seen}: {problem}. {other_form}")
            return notes
