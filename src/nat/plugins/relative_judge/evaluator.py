"""The evaluator: one group in, one score for each of its attempts out."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random

from nat.builder.builder import EvalBuilder
from nat.builder.evaluator import EvaluatorInfo
from nat.data_models.evaluator import ComparisonFacts, EvalInputItem, EvalOutputItem
from nat.errors import EvaluationError
from nat.eval.evaluator.group_evaluator import GroupEvaluator
from nat.plugins.evaluators.llm_judge import text_of_value
from nat.plugins.relative_judge.ask import Ask, ClientAsk, ask_for_scores
from nat.plugins.relative_judge.config import RelativeJudgeConfig
from nat.plugins.relative_judge.order import middle, on_scale, order_facts, taken
from nat.plugins.relative_judge.prompt import AttemptScore, prompt
from nat.plugins.relative_judge.transcript import Transcript, transcript
from nat.registry.decorators import register_evaluator

TIE = 0.5
"""The score of attempts that are all the same, which no judge has to see."""
_PAIR = 2


@dataclass(frozen=True)
class Judged:
    """The scores of different attempts, and how the order mattered."""

    scores: Sequence[AttemptScore]
    facts: ComparisonFacts = field(default_factory=ComparisonFacts)


class RelativeJudge(GroupEvaluator):
    """Scores attempts against each other by a model. Attempts with the same text get the same score."""

    def __init__(self, config: RelativeJudgeConfig, ask: Ask) -> None:
        super().__init__(config.max_concurrency, "relative_judge")
        self._config = config
        self._ask = ask
        self._known: dict[str, Judged] = {}
        self._times_judged: dict[str, int] = {}

    async def evaluate_group(self, items: Sequence[EvalInputItem]) -> Sequence[EvalOutputItem]:
        """The scores of the attempts at one task.

        Raises:
            EvaluationError: there is only one attempt, or the judge gave no valid scores.

        """
        if len(items) == 1:
            raise EvaluationError("relative_judge compares attempts, and this example has only one with an answer")
        transcripts = [transcript(item, self._config.judged) for item in items]
        different = sorted(set(transcripts), key=str)
        judged = await self._judged(text_of_value(items[0].input_obj), different)
        facts = judged.facts.shared_by(len(items))
        scores = [judged.scores[different.index(each)] for each in transcripts]
        return [
            EvalOutputItem(id=item.id, score=found.score, reasoning=found.why, comparison=facts)
            for item, found in zip(items, scores, strict=True)
        ]

    async def _judged(self, task: str, attempts: Sequence[Transcript]) -> Judged:
        """Scores of attempts that differ, from the judge or from a call before."""
        if len(attempts) == 1:
            return Judged([AttemptScore(score=TIE, why="all attempts are the same")])
        text = "\0".join([task, *map(str, attempts)])
        key = sha256(text.encode(errors="replace")).hexdigest()
        if (known := self._known.get(key)) is not None:
            return known
        times = self._times_judged[key] = self._times_judged.get(key, -1) + 1
        rng = Random(f"{self._config.seed} {key} {times}")
        judged = await self._in_calls(task, attempts, rng)
        if self._config.cache:
            self._known[key] = Judged(judged.scores, ComparisonFacts(reused=1))
        return judged

    async def _in_calls(self, task: str, attempts: Sequence[Transcript], rng: Random) -> Judged:
        """Judge in as many calls as it takes; the attempt in the middle of the first call is in all of them."""
        config, found = self._config, dict[int, AttemptScore]()
        lengths = [min(len(str(attempt)), config.max_chars // 2) for attempt in attempts]
        rest = rng.sample(range(len(attempts)), len(attempts))
        twice = len(attempts) == _PAIR or rng.random() < config.both_orders
        facts, anchors, room = ComparisonFacts(), list[int](), config.max_chars
        while rest:
            more = taken(rest, lengths, count=config.max_group - len(anchors), room=room)
            shown = rng.sample([*anchors, *more], len(anchors) + len(more))
            judged = await self._in_order(task, [attempts[number] for number in shown], rng, twice=twice)
            own = dict(zip(shown, judged.scores, strict=True))
            for anchor in anchors:
                own = {n: on_scale(score, anchor=own[anchor], known=found[anchor]) for n, score in own.items()}
            found, facts, rest = own | found, facts + judged.facts, rest[len(more) :]
            if not anchors:
                anchors = [middle(own)]
                room -= lengths[anchors[0]]
        return Judged([found[number] for number in range(len(attempts))], facts)

    async def _in_order(self, task: str, attempts: Sequence[Transcript], rng: Random, *, twice: bool) -> Judged:
        """Judge the attempts in this order, and perhaps in the reversed one; the mean of both scores counts."""
        forward = await self._in_a_call(task, attempts, rng)
        if not twice:
            return forward
        reversed_ = await self._in_a_call(task, attempts[::-1], rng)
        backward = reversed_.scores[::-1]
        facts = forward.facts + reversed_.facts
        facts += order_facts([each.score for each in forward.scores], [each.score for each in backward])
        means = [
            AttemptScore(score=(first.score + second.score) / 2, why=first.why)
            for first, second in zip(forward.scores, backward, strict=True)
        ]
        return Judged(means, facts)

    async def _in_a_call(self, task: str, shown: Sequence[Transcript], rng: Random) -> Judged:
        config = self._config
        messages, code = prompt(task, shown, rubric=config.rubric, max_chars=config.max_chars, rng=rng)
        return Judged(await ask_for_scores(self._ask, messages, len(shown), code))


@register_evaluator(config_type=RelativeJudgeConfig)
async def relative_judge(config: RelativeJudgeConfig, builder: EvalBuilder) -> AsyncGenerator[EvaluatorInfo, None]:
    """Build the evaluator; the judge is called through the OpenAI client."""
    ask = ClientAsk(await builder.get_llm(config.llm_name, "openai"))
    description = f"Compared with each other by {config.llm_name}"
    yield EvaluatorInfo(config=config, evaluate_fn=RelativeJudge(config, ask).evaluate, description=description)
