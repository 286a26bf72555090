"""Count failed rollouts by cause, list the first failure of each kind in `failures.txt`, and suggest a remedy. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence

from nat.data_models.evaluate_runtime import EvaluationRunOutput
from nat.data_models.evaluator import EvalOutputItem
from nat.data_models.rollout_failure import (
    CALLS_FAILED,
    NO_SCORE,
    SCORED_TOO_LATE,
    TIMED_OUT,
    FailureCount,
    FirstFailure,
    counted,
)

FAILURES_NAME = "failures.txt"


def first_of_each(failures: Iterable[FirstFailure]) -> list[FirstFailure]:
    """The first failure of each kind."""
    found: dict[str, FirstFailure] = {}
    for failure in failures:
        found.setdefault(failure.way, failure)
    return list(found.values())


def failures_text(failures: Sequence[FirstFailure]) -> str:
    """The text of the file; empty if nothing failed."""
    if not failures:
        return ""
    head = "The first failure of each kind.\n"
    return "\n".join([head, *(_section(failure) for failure in failures)])


def counts_of(output: EvaluationRunOutput) -> list[FailureCount]:
    """Failed rollouts and missing scores of an evaluation, counted by cause."""
    unscored = [(_no_score_by(name, item), item.error) for name, item in _unscored(output)]
    return counted([*((failure.cause, str(failure)) for failure in output.failures), *unscored])


def failures_of(output: EvaluationRunOutput) -> list[FirstFailure]:
    """Failed rollouts and missing scores of an evaluation, one of each kind, with its traceback."""
    raised = (
        FirstFailure(rollout=f"item {f.item_id}", cause=f.cause, error=str(f), traceback=f.traceback)
        for f in output.failures
    )
    unscored = (
        FirstFailure(rollout=f"item {i.id}", cause=_no_score_by(name, i), error=i.error, traceback=i.traceback)
        for name, i in _unscored(output)
    )
    return first_of_each([*raised, *unscored])


def _no_score_by(evaluator: str, item: EvalOutputItem) -> str:
    return f"{item.cause} ({evaluator})"


def _unscored(output: EvaluationRunOutput) -> list[tuple[str, EvalOutputItem]]:
    return [
        (name, item)
        for name, result in output.evaluation_results
        for item in result.eval_output_items
        if item.score is None
    ]


def _section(failure: FirstFailure) -> str:
    what = failure.traceback or f"{failure.error or 'no error text was recorded'}\n"
    return f"==== {failure.cause}; {failure.rollout}\n\n{what}"


_OF_ERRORS = {
    r"response_format": "The server cannot force an output format: leave `response_format` out and let the agent read "
    "the format from the answer's text, or serve the model with a server that has it (vLLM).",
    r"tool_choice": "The server leaves the choice of tools to the model: leave `tool_choice` out or set it to 'auto', "
    "or serve the model with a server that forces tools (vLLM).",
    r"context has \d+ tokens|context_length_exceeded|maximum context length": "The prompt is longer than the model's "
    "context: let the agent send less of the history, lower `max_tokens`, or raise the LLM's `max_seq_length` where "
    "the model allows it.",
    r"no chat template": "The model is a base model, or its template was not saved with it: put a chat_template.jinja "
    "beside the tokenizer, or let the agent use completions.",
    r"OPENAI_API_KEY|api_key client option|Missing credentials": "The agent creates its own client: take it from "
    "`builder.get_llm(name, wrapper_type=…)`, which knows the address and the key and records the calls.",
    r"Error code: 5\d\d|status 5\d\d": "The model's server failed, not the workflow: its log says why (backend.log in "
    "the run's folder for a `local` LLM). If it lacks memory or is overloaded, lower eval.general.max_concurrency.",
    r"the answer is not (JSON|a completion)|the answer has no choices": "The model's server did not answer with a "
    "completion: let `base_url` of the LLM name the API, whose address mostly ends in /v1, and not a page or a proxy.",
    r"Error code: 401|Error code: 403": "The model's server refuses the key: set `api_key` of the LLM, or its variable "
    "in the environment.",
    r"Error code: 404": "The model's server does not have this: correct `model` or `base_url` of the LLM.",
    r"Error code: 429": "The model's server takes fewer requests: lower eval.general.max_concurrency, or raise "
    "`max_retries` of the LLM.",
    r"Connection error|ConnectError": "The model's server cannot be reached: start it, or correct `base_url` of the "
    "LLM.",
    r"'coroutine' object has no attribute": "An `await` is missing before the call that gave this object.",
}
_OF_SCORES = {
    r"the (score|reward) is None": "Let the evaluator return a number for every answer, 0 for one that is wrong.",
    r"the (score|reward) is .*, not a number": "Let the evaluator return a number: turn words into one "
    "(`1.0 if score == 'good' else 0.0`).",
    r"the (score|reward) is -?(nan|inf), not a finite number": "Look for a division by zero or the mean of nothing in "
    "the evaluator.",
    r"not an EvalOutputItem": "Let every path through `evaluate_item` return "
    "`EvalOutputItem(id=item.id, score=…, reasoning=…)`.",
    r"not an EvalOutput$": "Let the evaluator's function return `EvalOutput(average_score=…, eval_output_items=[…])`.",
    r"'NoneType' object": "The evaluator reads something that is None. If it is `output_obj`, the workflow returned "
    "nothing: `nat run` plays one input. If it is `expected_output_obj`, the row has no answer in the column that "
    "eval.general.dataset.structure.answer_key names. The traceback is in failures.txt.",
    r"has only one with an answer": "Play each example several times (num_generations above 1; `nat eval --reps 4`), "
    "or see why its other rollouts failed.",
    r"the judge gave no valid scores": "Let another model judge, or one whose server takes a `response_format`; its "
    "replies may be cut off by max_tokens of the LLM.",
    r"the judge gave no JSON object": "Let another model judge, or one that replies with the JSON object alone, which "
    "needs no code; its replies may be cut off by max_tokens of the LLM.",
    r"only scores up to": "Scale the evaluator's scores, for example to between 0 and 1.",
}
_WORKFLOW = "Fix the workflow: the traceback is in failures.txt, and `nat run` plays one input."
_EVALUATOR = "Fix the evaluator: the traceback is in failures.txt, and `nat eval` runs it on the same dataset."
_CALLS = (
    "Correct what the error names, and let the agent raise the errors of its calls: one that catches them and answers "
    "hides why it fails."
)
_DEADLINE = "Raise eval.general.item_timeout, lower eval.general.max_concurrency, or shorten the episodes."
_SCORING_DEADLINE = "Find out what the evaluator waits for, or raise eval.general.scoring_timeout."


def remedy_of(cause: str, error: str | None) -> str:
    """The remedy for a cause of `nat.data_models.rollout_failure`, given its most frequent error."""
    if cause == TIMED_OUT:
        return _DEADLINE
    if cause.startswith(SCORED_TOO_LATE):
        return _SCORING_DEADLINE
    if cause == CALLS_FAILED:
        return known_remedy(error) or _CALLS
    if cause.startswith(NO_SCORE):
        return _known(error, _OF_SCORES) or known_remedy(error) or _EVALUATOR
    return known_remedy(error) or _WORKFLOW


def known_remedy(error: str | None) -> str | None:
    """The remedy for an error of the workflow; None if the error alone does not tell."""
    return _known(error, _OF_ERRORS)


def _known(error: str | None, remedies: Mapping[str, str]) -> str | None:
    return next((remedy for pattern, remedy in remedies.items() if re.search(pattern, error or "")), None)
