"""A training call becomes a batch of the learner."""

from dataclasses import replace

import pytest

from fakes.art_answers import choice, group, trajectory, user
from fakes.training_batches import training_row
from fakes.training_rows import logprobs_of
from nat.art.server.batch import make_art_batch
from nat.art.server.served_answers import ServedAnswers
from nat.art.wire import ArtDevTrainConfig, ArtModel, ArtTrainConfig, ArtTrajectoryGroup
from nat.backend.algorithms.registry import resolve
from nat.backend.model_loader import load_model
from nat.backend.training.batch import make_batch
from nat.backend.training.micro_batch import optimizer_steps
from nat.backend.training.mismatch import served_logprobs
from nat.errors import BatchRefused
from nat.wire.sampling import read_sampling


def made(loaded, *groups, config=(), dev=(), internal=None, served=None):
    return make_art_batch(
        groups,
        ArtTrainConfig(**dict(config)),
        ArtDevTrainConfig(**dict(dev)),
        model=ArtModel(name="agent", project="demo", internal_config=internal or {}),
        loaded=loaded,
        served=served or ServedAnswers(),
    )


def num_steps(batch):
    """Number of optimizer steps that the learner makes."""
    return len(optimizer_steps(make_batch(batch.groups, resolve(batch.config)).rows, batch.config))


def answers(*rewards, tokens=2, question="go"):
    """A group of one-turn trajectories with these numbers of sampled tokens."""
    return group(*(trajectory(reward, user(question), choice([7] * tokens)) for reward in rewards))


def test_golden_batch(loaded):
    """Rewards 1, 0 and 1/2 with 5, 4 and 3 trained tokens: ±1, weights 0.9 and 1.125, the third is left out.

    A second group with equal rewards carries no signal.
    """
    three = [trajectory(r, user("go"), choice([7] * n)) for r, n in ((1.0, 5), (0.0, 4), (0.5, 3))]
    for dev in ({}, {"scale_rewards": False}):
        batch = made(loaded, group(*three), answers(0.1, 0.1, 0.1), dev=dev)
        (only,) = batch.groups
        assert [r.advantage for r in only.rollouts] == pytest.approx([1.0, -1.0])
        assert [r.weight for r in only.rollouts] == pytest.approx([0.9, 1.125])
        assert [r.reward for r in only.rollouts] == [1.0, 0.0]
        assert num_steps(batch) == 1
    assert batch.facts == {
        "data/step_num_scenarios": 2,
        "data/step_num_trajectories": 6,
        "data/step_num_groups_submitted": 2,
        "data/step_num_groups_trainable": 1,
        "data/step_trainer_tokens": 9,
        "data/step_num_answers": 2,
        "data/step_num_retokenized_answers": 2,
        "data/step_num_too_long_rows": 0,
        "data/step_num_untrainable_answers": 0,
    }


def test_exceptions_count_as_trajectories(loaded):
    """ART counts rollouts that raised; a batch of such rollouts has no signal but is no error."""
    failed = ArtTrajectoryGroup(exceptions=[{"type": "E", "message": "m", "traceback": ""}])
    assert made(loaded, failed).facts["data/step_num_trajectories"] == 1
    assert made(loaded).groups == []


def test_conversations_of_a_trajectory_weigh_together(loaded):
    """Reward, advantage and weight belong to the trajectory and cover the tokens of all its conversations."""
    two = {"additional_histories": [{"messages_and_choices": [user("x"), choice([8] * 3)]}]}
    batch = made(loaded, group(trajectory(1, user("a"), choice([7]), **two), trajectory(0, user("a"), choice([7] * 2))))
    first, second = batch.groups[0].rollouts
    assert [row.num_sampled for row in first.rows] == [1, 3]
    assert (first.weight, second.weight) == (pytest.approx(3 / 4), pytest.approx(3 / 2))


def test_no_log_probabilities_at_all_are_an_error(loaded):
    """A batch without log probabilities is an error: the client sent messages in place of choices."""
    plain = [trajectory(r, user("a"), {"role": "assistant", "content": "b"}) for r in (0, 1)]
    with pytest.raises(BatchRefused, match=r"none of 2 trajectories .* 4 messages, 0 of them answers") as error:
        made(loaded, group(*plain))
    assert "choice" in error.value.hint


def test_an_error_names_its_trajectory(loaded):
    """The error counts places as the request does."""
    with pytest.raises(BatchRefused, match=r"trajectory_groups\.1\.trajectories\.1\.messages_and_choices\.1\."):
        made(
            loaded,
            answers(1.0, 0.0),
            group(trajectory(1, user("a"), choice([7])), trajectory(0, user("a"), choice([999]))),
        )


def test_a_packed_sequence_is_a_step(loaded):
    """Its length is the longest row's rounded up to 2048, within the client's limit for the model, or as the call says.

    The model's context does not limit it: with a small one a step would hold a single short rollout.
    """
    roomy = replace(loaded, max_seq_length=100_000)
    many = [answers(1.0, 0.0, tokens=1100) for _ in range(3)]
    batch = made(roomy, *many)
    assert batch.config.tokens_per_step == 2048
    assert num_steps(batch) == 6
    assert made(roomy, answers(1.0, 0.0, tokens=2048)).config.tokens_per_step == 4096
    assert num_steps(made(roomy, *many, config={"grad_accumulation_sequences": 3})) == 2
    assert num_steps(made(roomy, *many, dev={"packed_sequence_length": 8000})) == 1
    assert loaded.max_seq_length < made(loaded, answers(1.0, 0.0)).config.tokens_per_step == 2048
    short = {"init_args": {"max_seq_length": 300}}
    assert made(loaded, answers(1.0, 0.0), internal=short).config.tokens_per_step == 300


def test_too_long_rows_are_left_out_counted_and_logged(loaded, caplog):
    """The limit is the model's, the client's for the model, or the packed sequence's, whichever is least."""
    long = group(trajectory(1, user("a"), choice([7] * 600)), trajectory(0, user("a"), choice([7])))
    batch = made(loaded, long)
    assert [r.reward for r in batch.groups[0].rollouts] == [0.0]
    assert batch.facts["data/step_num_too_long_rows"] == 1
    assert "at most 512 fit" in caplog.text
    roomy = {"init_args": {"max_seq_length": 10**6}}
    assert made(loaded, long, internal=roomy).facts["data/step_num_too_long_rows"] == 1
    short = {"init_args": {"max_seq_length": 100}}
    assert made(loaded, answers(1.0, 0.0, tokens=200), internal=short).groups == []
    assert made(loaded, answers(1.0, 0.0, tokens=200), dev={"packed_sequence_length": 64}).groups == []


@pytest.mark.parametrize(
    "dev",
    [
        {},
        {"ppo": True},
        {"precalculate_logprobs": True, "truncated_importance_sampling": 2.0},
        {"importance_sampling_level": "average", "kl_penalty_coef": 0.1, "kimi_k2_tau": 0.1, "mask_prob_ratio": True},
    ],
    ids=str,
)
def test_rewarded_answers_become_likelier(make_learner, loaded, dev):
    """In the learner, better sampled answers gain probability and worse ones lose it."""
    fresh = load_model(loaded.path, device="cpu")
    served = ServedAnswers()
    trajectories = [
        trajectory(reward, user("go"), answered(fresh, served, text)) for reward, text in ((1.0, "left"), (0.0, "up"))
    ]
    batch = made(fresh, group(*trajectories), config={"learning_rate": 1e-3}, dev=dev, served=served)
    assert batch.facts["data/step_num_retokenized_answers"] == 0
    rows = make_batch(batch.groups, resolve(batch.config)).rows
    before, seen = served_logprobs(fresh, rows), []
    learner = make_learner(fresh)
    metrics = learner.update(batch.groups, resolve(batch.config), on_step=seen.append)
    after = served_logprobs(fresh, rows)
    assert all(float((after[row.index] - before[row.index]).sum()) * row.advantages[0] > 0 for row in rows)
    assert metrics["logprob_diff_mean"] < 1e-5
    assert [step["num_gradient_steps"] for step in seen] == [1]


def answered(loaded, served, text):
    """An answer with the model's log probabilities, remembered as the server would."""
    prompt = loaded.tokenizer.render_chat([user("go")])
    token_ids = [*loaded.tokenizer.encode(text), loaded.tokenizer.eos_token_id]
    whole = [*prompt, *token_ids]
    logprobs = logprobs_of(training_row(loaded, whole, list(range(len(prompt), len(whole)))))[len(prompt) :]
    served.remember(prompt, token_ids, logprobs)
    return choice(token_ids, logprobs, content=text)


def greedily(served, loaded, *questions):
    """One answer to each question, remembered as sampled at temperature 0."""
    for question in questions:
        served.remember(loaded.tokenizer.render_chat([user(question)]), [7], [-1.0], read_sampling({"temperature": 0}))
    return served


def test_a_batch_of_greedy_answers_is_refused_with_the_reason(loaded):
    """Greedy answers are not samples of the trained distribution; a batch of only such answers is an error."""
    greedy = group(trajectory(1, user("a"), choice([7])), trajectory(0, user("a"), choice([7])))
    with pytest.raises(BatchRefused, match="2 with temperature=0") as error:
        made(loaded, greedy, served=greedily(ServedAnswers(), loaded, "a"))
    assert "temperature above 0" in str(error.value.hint)


def test_greedy_answers_among_others_are_counted_and_logged(loaded, caplog):
    """Among greedy answers, the others are trained on."""
    mixed = group(trajectory(1, user("a"), choice([7])), trajectory(0, user("a"), choice([8])))
    batch = made(loaded, mixed, served=greedily(ServedAnswers(), loaded, "a"))
    assert [r.reward for r in batch.groups[0].rollouts] == [0.0]
    assert batch.facts["data/step_num_untrainable_answers"] == 1
    assert "1 answers of the batch are left out of the loss: 1 with temperature=0" in caplog.text
