from fakes.llm_steps import call, steps, user
from fakes.made_spans import rollout
from nat.data_models.evaluator import EvalOutput, EvalOutputItem
from nat.rollout.traces import JudgedRollout, Traces, opened_traces
from nat.telemetry.rollout_spans import Evaluation


class Collected:
    """Takes the place of a sender."""

    def __init__(self) -> None:
        self.spans = []
        self.counts = []
        self.closed = False

    def add(self, count, make):
        self.counts.append(count)
        self.spans += make()

    def close(self):
        self.closed = True

    @property
    def roots(self):
        return [span for span in self.spans if span.parent_id is None]

    def of(self, name):
        return [span.attributes.get(name) for span in self.roots]


def output(**scores):
    items = [EvalOutputItem(id=name, score=score, reasoning=None) for name, score in scores.items()]
    return EvalOutput(average_score=None, eval_output_items=items)


def test_a_rollout_that_nobody_judges_is_complete_at_once():
    """Its spans have one trace; the number that is queued is the number of spans."""
    sink = Collected()
    made = rollout("1", steps=steps(call([user("q")], "a")))
    Traces([sink], workflow="agent").ended(made, "q", is_judged=False)
    chat, whole = sink.spans
    assert (chat.parent_id, chat.trace_id) == (whole.span_id, whole.trace_id)
    assert whole.name == "invoke_workflow agent"
    assert (whole.attributes["input.value"], whole.attributes["output.value"]) == ("q", "a")
    assert sink.counts == [1, 1]


def test_a_judged_rollout_waits_for_its_scores():
    """What is inside is sent at once; the rollout's span has the scores of all evaluators."""
    sink = Collected()
    traces = Traces([sink])
    for name in ("a", "b", "c"):
        traces.ended(rollout(name, steps=steps(call([user("q")], "a"))), "q", is_judged=True)
    assert (len(sink.spans), sink.roots) == (3, [])
    traces.evaluated(["a", "b"], [("match", output(a=1.0, b=0.0)), ("tone", output(a=0.5))])
    assert sink.of("nat.evaluation.match") == [1.0, 0.0]
    assert sink.of("nat.evaluation.tone") == [0.5, None]
    assert [event.attributes["gen_ai.evaluation.name"] for event in sink.roots[0].events] == ["match", "tone"]


def test_rollouts_of_one_example_are_told_apart_by_their_seeds():
    """Those of a record without a seed are taken in their order; what was taken is not taken again."""
    sink = Collected()
    traces = Traces([sink])
    for seed in (1, 2, 3):
        traces.ended(rollout("a", seed=seed), "q", is_judged=True)
    reward = (Evaluation("reward", 1.0),)
    traces.judged(
        [
            JudgedRollout("a", 2, {"n": "second"}, reward),
            JudgedRollout("a", 9, {}, reward),
            JudgedRollout("b", None, {}, ()),
        ]
    )
    traces.judged([JudgedRollout("a", None, {"n": "first"}, ()), JudgedRollout("a", 2, {"n": "again"}, reward)])
    assert list(zip(sink.of("nat.finetune.seed"), sink.of("n"), strict=True)) == [(2, "second"), (1, "first")]


def test_the_end_sends_rollouts_without_a_verdict():
    """An interrupted command leaves no trace without its root."""
    sink = Collected()
    traces = Traces([sink])
    for name in ("a", "a", "b"):
        traces.ended(rollout(name), "q", is_judged=True)
    traces.close()
    assert sink.of("nat.finetune.example_id") == ["a", "a", "b"]
    assert sink.closed


async def test_without_exporters_nothing_is_kept():
    """Off by default: no thread, no span, no memory."""
    async with opened_traces({}) as traces:
        traces.ended(rollout("a"), "q", is_judged=True)
        assert traces._waiting == {}
        traces.evaluated(["a"], [])


def test_every_exporter_gets_all_spans():
    """Several may be configured."""
    sinks = [Collected(), Collected()]
    Traces(sinks).ended(rollout("1", steps=steps(call([user("q")], "a"))), "q", is_judged=False)
    assert [span.name for span in sinks[0].spans] == [span.name for span in sinks[1].spans]
