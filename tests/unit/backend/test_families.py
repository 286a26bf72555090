"""Models of many families: each trains and is served as transformers computes it, packed or row by row."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from fakes.families import KNOWN, PLAIN, make_tiny_family
from fakes.listeners import one, run
from fakes.tiny_fixtures import mostly_slow
from fakes.training_batches import training_row
from nat.backend.algorithms.registry import resolve
from nat.backend.export import export_model
from nat.backend.inference.engine import Engine
from nat.backend.lora import LoraSettings
from nat.backend.model_loader import load_weights
from nat.backend.path_checks import load_checked_model
from nat.backend.training.batch import Row
from nat.backend.training.learner import Learner
from nat.backend.training.micro_batch import make_micro_batch
from nat.backend.training.mismatch import served_logprobs
from nat.backend.training.reference import Reference
from nat.wire.training import TrainingConfig, TrainingGroup, TrainingRollout

PROMPT = list(range(40, 60))
"""Longer than a window, and than the shortest prompt that is kept."""
CONFIG = resolve(TrainingConfig(learning_rate=1e-2, warmup_steps=0, max_kl=None, max_logprob_difference=1e-3))
CLOSE = {"atol": 2e-4, "rtol": 1e-4}


@pytest.mark.parametrize("family", mostly_slow(KNOWN, "gemma3", "mixtral", "qwen3_5_text"))
def test_a_family_samples_and_trains_as_transformers_computes_it(tmp_path, family):
    """Sampler, second turn, learner, gradient over a shared prompt, both kinds of update, and what is exported."""
    folder = make_tiny_family(tmp_path / "model", family)
    loaded, plain = load_checked_model(folder, device="cpu"), plain_of(folder)
    assert (loaded.plain is not None) == (family in PLAIN)
    assert loaded.plain is None or PLAIN[family] in loaded.plain.why
    played = play(loaded)
    conversations = [ids for ids, _ in played]
    scores = [plain_scores(plain, ids) for ids in conversations]
    for (_, sampled), score in zip(played, scores, strict=True):
        at = [number for number, logprob in enumerate(sampled) if logprob is not None]
        torch.testing.assert_close(torch.tensor([sampled[number] for number in at]), score[at], **CLOSE)
    check_learner(loaded, plain, conversations, torch.cat(scores))

    assert update(loaded, conversations)["grad_norm"] > 0
    trained = check_export(loaded, conversations, tmp_path / "full")
    assert not torch.allclose(trained, torch.cat(scores), atol=1e-3)

    adapter = load_checked_model(tmp_path / "full", device="cpu", lora=LoraSettings(2))
    assert update(adapter, conversations)["grad_norm"] > 0
    adapted = check_export(adapter, conversations, tmp_path / "lora")
    assert not torch.allclose(adapted, trained, atol=1e-4)
    again = load_weights(tmp_path / "lora" / "adapter", torch.float32)
    with torch.no_grad():
        torch.testing.assert_close(torch.cat([plain_scores(again, ids) for ids in conversations]), adapted, **CLOSE)


def plain_of(folder):
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()


def plain_scores(model, token_ids):
    """Log probability of each token after the prompt, as transformers computes a single row."""
    logits = model(input_ids=torch.tensor([token_ids]), use_cache=False).logits[0]
    logprobs = logits.float().log_softmax(-1)[:-1].gather(1, torch.tensor(token_ids[1:]).unsqueeze(1))
    return logprobs.squeeze(1)[len(PROMPT) - 1 :]


def play(loaded):
    """Two answers to a prompt, and a second turn after each, with the log probabilities of the sampler."""
    engine = Engine(loaded, policy_version="m@0")
    asked = {"max_tokens": 4, "ignore_eos": True}
    first = run(engine, *(one(PROMPT, seed=seed, **asked) for seed in (1, 2)))
    prompts = [[*PROMPT, *answer.token_ids, 7, 8, 9] for answer in first]
    second = run(engine, *(one(prompt, seed=3, **asked) for prompt in prompts))
    assert loaded.plain is not None or all(answer.num_reused for answer in second)
    return [
        (prompt + after.token_ids, [*before.logprobs, None, None, None, *after.logprobs])
        for prompt, before, after in zip(prompts, first, second, strict=True)
    ]


def rows_of(conversations):
    """Rows of one group in which every token after the prompt counts as sampled."""
    size = len(conversations[0]) - len(PROMPT)
    positions, zeros = list(range(len(PROMPT) - 1, len(PROMPT) - 1 + size)), [0.0] * size
    return [
        Row(number, 0, number, ids[:-1], positions, ids[len(PROMPT) :], zeros, zeros)
        for number, ids in enumerate(conversations)
    ]


def check_learner(loaded, plain, conversations, scores):
    """Log probabilities of the learner, and gradients of all weights, are those of the rows one by one."""
    learned = make_micro_batch(rows_of(conversations), {}, loaded.device).scores(loaded.model).logprobs_K
    torch.testing.assert_close(learned, scores, **CLOSE)
    weights = torch.linspace(-1, 2, len(learned))
    (learned * weights).sum().backward()
    (scores * weights).sum().backward()
    found, wanted = (
        {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
        for model in (loaded.model, plain)
    )
    assert set(found) == set(wanted)
    largest = max(float(gradient.abs().max()) for gradient in wanted.values())
    for name, gradient in found.items():
        assert float((gradient - wanted[name]).abs().max()) <= 2e-5 * largest, name
    loaded.model.zero_grad()


def update(loaded, conversations):
    """Train on the conversations as good and bad rollouts of one example."""
    sampled = list(range(len(PROMPT), len(conversations[0])))
    rollouts = [
        TrainingRollout(reward=number % 2, rows=[training_row(loaded, ids, sampled)])
        for number, ids in enumerate(conversations)
    ]
    learner = Learner(loaded, Reference(loaded, lambda: loaded.model))
    return learner.update([TrainingGroup(id="a", rollouts=rollouts)], CONFIG)


def check_export(loaded, conversations, folder):
    """What was exported gives transformers the log probabilities that are served."""
    export_model(loaded, folder)
    exported, served = plain_of(folder), served_logprobs(loaded, rows_of(conversations), 2)
    found = torch.cat([served[number] for number in range(len(conversations))])
    with torch.no_grad():
        torch.testing.assert_close(found, torch.cat([plain_scores(exported, ids) for ids in conversations]), **CLOSE)
    return found
