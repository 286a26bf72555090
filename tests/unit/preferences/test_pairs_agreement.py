"""Training, the builder, the adapters and the export find the same pairs among the same answers."""

from hypothesis import given
from hypothesis import strategies as st

from fakes.run_records import rollout_record
from fakes.runs_on_disk import thread
from fakes.training_rows import row_of
from nat.backend.algorithms.registry import resolve
from nat.backend.training.batch import make_batch
from nat.data_models.finetuning import DPOItem, OpenAIMessage, Trajectory, TrajectoryCollection
from nat.finetuning.preferences.candidates import CandidateStep, pair_turn
from nat.finetuning.preferences.trajectories import without_problems
from nat.plugins.customizer.dpo.rows import pairs_of
from nat.plugins.local.texts import tokenized_groups
from nat.preferences.pairs import PairRule
from nat.trajectory_files.formats import RowOptions, rows_of
from nat.trajectory_files.generations import group_of
from nat.wire.training import TokenizeAnswer, TokenizedConversation, TrainingConfig, TrainingGroup, TrainingRollout

PROMPTS = ["left?", "right?"]
SCORES = st.sampled_from([0.0, 5e-13, 1e-6, 0.3, 0.1 + 0.2, 0.5, 1.0, 1.0 + 5e-10, 1e6, 1e6 + 1e-4])
ANSWERS = st.lists(st.tuples(st.sampled_from(PROMPTS), st.sampled_from("abc"), SCORES), min_size=2, max_size=6)
"""The prompt, the text and the score of each answer."""

Played = list[tuple[str, str, float]]
Pairs = list[tuple[int, int]]


def row(prompt: str, answer: str):
    """A letter is a token."""
    text = prompt + answer
    return row_of([ord(letter) for letter in text], [None] * len(prompt) + [-0.5] * len(answer))


def trained(answers: Played, margin: float) -> Pairs:
    """The pairs of a job, as indices of the answers."""
    rollouts = [TrainingRollout(reward=score, rows=[row(prompt, answer)]) for prompt, answer, score in answers]
    config = TrainingConfig(algorithm="dpo", options={"margin": margin})
    return [pair.rollouts for pair in make_batch([TrainingGroup(id="g", rollouts=rollouts)], resolve(config)).pairs]


def built(answers: Played, margin: float) -> Pairs:
    """The pairs of `dpo_traj_builder`."""
    steps = [CandidateStep("e", "t", at, prompt, answer, score) for at, (prompt, answer, score) in enumerate(answers)]
    pairs, _ = pair_turn(steps, PairRule(margin))
    return [(pair.chosen_index, pair.rejected_index) for pair in pairs]


def exported(answers: Played, margin: float) -> list[tuple[str, str, str, float, float]]:
    """The rows of the export."""
    records = [
        rollout_record(
            "e",
            at,
            reward=score,
            conversations=[thread([{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}], 1)],
            rows=[row(prompt, answer)],
        )
        for at, (prompt, answer, score) in enumerate(answers)
    ]
    group, _ = group_of("train", 0, "e", records)
    made = rows_of(group, RowOptions("preference", pairs=PairRule(margin)))
    texts = [[row[name][0]["content"] for name in ("prompt", "chosen", "rejected")] for row in made.rows]
    return [(*text, row["score_chosen"], row["score_rejected"]) for text, row in zip(texts, made.rows, strict=True)]


@given(ANSWERS, st.sampled_from([0.0, 1e-6, 0.2]))
def test_all_find_the_same_pairs(answers, margin):
    """The backend among rollouts, the builder among candidates, and the export, whose rows have the backend's order."""
    found = trained(answers, margin)
    assert sorted(built(answers, margin)) == sorted(found)
    assert exported(answers, margin) == [
        (answers[a][0], answers[a][1], answers[b][1], answers[a][2], answers[b][2]) for a, b in found
    ]


class Words:
    """A tokenizer that knows letters alone."""

    async def tokenize(self, request):
        messages = [[message["content"] for message in each.messages] for each in request.conversations]
        rows = [row("".join(prompt), answer) for *prompt, answer in messages]
        return TokenizeAnswer(conversations=[TokenizedConversation(rows=[each]) for each in rows])


AB = st.sampled_from("ab")
ITEMS = st.tuples(st.sampled_from(["", "a", "a\n", " b", "c"]), AB, AB, SCORES, SCORES)
"""What stands at the end of the prompt, both answers and their scores."""


@given(st.lists(ITEMS, min_size=1, max_size=4))
async def test_adapters_train_the_same_pairs(items):
    """NeMo Customizer and the embedded backend get the same pairs of a trajectory, after the same prompts."""
    asked = OpenAIMessage(role="user", content="?")
    trajectories = [
        Trajectory(
            episode=[
                DPOItem(
                    prompt=[asked, *([OpenAIMessage(role="assistant", content=end)] if end else [])],
                    chosen_response=chosen,
                    rejected_response=rejected,
                )
            ],
            reward=1.0,
            metadata={"id": "e", "chosen_score": better, "rejected_score": worse},
        )
        for end, chosen, rejected, better, worse in items
    ]
    whole = TrajectoryCollection(trajectories=[trajectories], run_id="r")
    kept, _ = without_problems(whole)
    if not kept.trajectories:
        return
    sent = [
        ("".join(m.content for m in item.prompt) + answer)
        for _, item in pairs_of(kept, whole_history=True)
        for answer in (item.chosen_response, item.rejected_response)
    ]
    groups = await tokenized_groups(whole, Words())
    assert ["".join(map(chr, r.rows[0].token_ids)) for group in groups for r in group.rollouts] == sent
    assert len({group.id for group in groups}) == len(groups) == len(sent) / 2
    assert len(make_batch(groups, resolve(TrainingConfig(algorithm="dpo"))).pairs) == len(groups)
