from random import Random

import pytest
import torch

from fakes.listeners import Recorder, one, run
from fakes.tiny_fixtures import mostly_slow
from fakes.tiny_model import CONFIGS
from nat.backend.attention import PackedRows, packed_logits
from nat.backend.inference.engine import Engine, EngineLimits
from nat.backend.inference.sequence import Request, SamplingParams, Sequence
from nat.backend.model_loader import load_model


def prompts(*lengths):
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(0, 250, (n,), generator=generator).tolist() for n in lengths]


def engine(loaded, **limits):
    return Engine(loaded, policy_version="m@0", limits=EngineLimits(**limits))


def generated(loaded, prompt, count):
    """The tokens that transformers itself generates."""
    model = loaded.model
    model.set_attn_implementation("eager")
    ids = torch.tensor([prompt])
    mask = torch.ones_like(ids)
    out = model.generate(ids, attention_mask=mask, max_new_tokens=count, do_sample=False, pad_token_id=0)
    model.set_attn_implementation("nat_packed")
    return out[0, len(prompt) :].tolist()


@pytest.mark.parametrize("kind", mostly_slow(CONFIGS, "qwen2", "gemma3"))
@pytest.mark.parametrize(
    "limits",
    [
        {"max_num_seqs": 2},
        {"max_num_seqs": 3, "max_step_tokens": 7},
        {"max_num_seqs": 3, "max_step_tokens": 7, "short_tokens": 4},
        {"max_num_seqs": 2, "short_tokens": 1, "prefix_cache_bytes": 0},
    ],
)
def test_greedy_tokens_are_those_of_transformers(tiny_dir, kind, limits):
    """Greedy tokens are those of transformers for all lengths, with reused slots, chunked prompts, shared prefixes."""
    loaded = load_model(tiny_dir(kind))
    requests = [one(p, max_tokens=4 + 3 * i, temperature=0.0) for i, p in enumerate(prompts(3, 40, 1, 9))]
    for sequence in run(engine(loaded, **limits), *requests):
        assert sequence.token_ids == generated(loaded, sequence.prompt_ids, sequence.params.max_tokens)


@pytest.mark.parametrize("short_tokens", [None, 4])
def test_log_probabilities_are_those_that_the_learner_computes(loaded, short_tokens):
    """Log probabilities of cached, batched sampling equal the learner's on packed rows to 1e-5."""
    done = run(
        engine(loaded, max_step_tokens=16, short_tokens=short_tokens),
        *(one(p, max_tokens=20, seed=i) for i, p in enumerate(prompts(5, 30, 12))),
    )
    rows = [s.prompt_ids + s.token_ids for s in done]
    with torch.no_grad():
        logprobs = packed_logits(loaded.model, PackedRows.of(rows)).log_softmax(-1)
    start = 0
    for sequence, row in zip(done, rows, strict=True):
        at = torch.arange(len(sequence.prompt_ids) - 1, len(row) - 1) + start
        again = logprobs[at, torch.tensor(sequence.token_ids)]
        torch.testing.assert_close(torch.tensor(sequence.logprobs), again, atol=1e-5, rtol=0)
        start += len(row)


def test_the_seed_alone_decides_the_text(loaded):
    """A seed gives the same text alone, beside other requests, and with a chunked prompt."""
    prompt = prompts(17)[0]
    ask = {"max_tokens": 30, "seed": 11, "temperature": 1.3}
    alone = run(engine(loaded), one(prompt, **ask))[0]
    others = [one(p, max_tokens=25, seed=i) for i, p in enumerate(prompts(4, 50, 9, 30))]
    crowded = run(engine(loaded), *others[:2], one(prompt, **ask), *others[2:])[2]
    chunked = run(engine(loaded, max_step_tokens=3), one(prompt, **ask))[0]
    assert alone.token_ids == crowded.token_ids == chunked.token_ids
    assert alone.token_ids != run(engine(loaded), one(prompt, **ask | {"seed": 12}))[0].token_ids


def test_a_sequence_ends_at_the_end_of_sequence_token(loaded):
    """The end-of-sequence token is kept and the reason is `stop`; `ignore_eos` continues."""
    asked = [one([7, 8], max_tokens=60, seed=s, ignore_eos=ignore) for s in range(40) for ignore in (False, True)]
    done = run(engine(loaded), *asked)
    stopped = [s for s in done if s.finish_reason == "stop"]
    assert stopped
    assert all(s.token_ids[-1] in loaded.eos_token_ids for s in stopped)
    assert all(not loaded.eos_token_ids & set(s.token_ids[:-1]) for s in done if not s.params.ignore_eos)
    assert all(len(s.token_ids) == 60 for s in done if s.params.ignore_eos)


def conversations(loaded, **limits):
    """Four generations of two examples with two turns each, and their engine."""
    subject, done = engine(loaded, **limits), []
    for turn, asked in enumerate(prompts(60, 50)):
        begun = [[*s.prompt_ids, *s.token_ids] for s in done] or [prompts(60, 50)[i // 4] for i in range(8)]
        texts = [[*text, *asked[: 20 * turn]] for text in begun]
        done = run(subject, *(one(text, max_tokens=9, seed=i, ignore_eos=True) for i, text in enumerate(texts)))
        yield done


@pytest.mark.parametrize("limits", [{}, {"short_tokens": 8}])
def test_kept_prefixes_are_not_computed_again(loaded, limits):
    """Generations of a prompt share all but its last token; a next turn computes only its new tokens.

    The last sampled token was never an input, so it is new as well.
    """
    first, second = conversations(loaded, **limits)
    assert [s.num_reused for s in first] == [0, 59, 59, 59, 0, 49, 49, 49]
    assert [len(s.prompt_ids) - s.num_reused for s in second] == [21] * 8


@pytest.mark.parametrize(
    "limits",
    [
        {"max_num_seqs": 3},
        {"max_step_tokens": 13},
        {"prefix_cache_bytes": 30_000},
        {"short_tokens": 20},
        {"short_tokens": 3, "max_num_seqs": 3, "max_step_tokens": 13},
        {"short_tokens": 3, "prefix_cache_bytes": 30_000},
    ],
)
def test_kept_prefixes_do_not_change_the_tokens(loaded, limits):
    """With few slots, chunked prompts, a small cache or shared prefixes, the tokens are those without a cache."""
    expected = [[s.token_ids for s in turn] for turn in conversations(loaded, prefix_cache_bytes=0)]
    assert [[s.token_ids for s in turn] for turn in conversations(loaded, **limits)] == expected


@pytest.mark.parametrize("kind", mostly_slow(CONFIGS, "qwen2", "gemma3"))
@pytest.mark.parametrize("seed", range(3))
def test_log_probabilities_do_not_depend_on_what_shares_or_waits(tiny_dir, kind, seed):
    """Chats that share beginnings, join, end or are interrupted get the log probabilities of a plain pass."""
    loaded, random = load_model(tiny_dir(kind)), Random(seed)
    bound = random.choice([None, 300 * loaded.token_bytes, 500 * loaded.token_bytes])
    limits = {"max_num_seqs": random.choice([3, 9]), "max_step_tokens": random.choice([20, 200])}
    subject = engine(loaded, short_tokens=random.choice([3, 12]), kv_cache_bytes=bound, **limits)
    beginnings, requests = prompts(4, 60, 90, 150), []
    for _ in range(14):
        text = random.choice(beginnings)[: random.choice([40, 200])] + prompts(40)[0][: random.randrange(1, 40)]
        params = SamplingParams(random.randrange(1, 50), seed=random.randrange(9), ignore_eos=True)
        requests.append(Request([Sequence(i, text, params) for i in range(random.choice([1, 1, 4]))], Recorder()))
        subject.add(requests[-1])
        for _ in range(random.randrange(9)):
            subject.step()
        if random.random() < 0.2 and subject.requests:
            subject.cancel(random.choice(subject.requests))
    while subject.has_work:
        subject.step()
    done = [s for request in requests if request.finished for s in request.sequences]
    assert len(done) > 9
    with torch.no_grad():
        rows = PackedRows.of([s.prompt_ids + s.token_ids for s in done])
        logprobs = packed_logits(loaded.model, rows).log_softmax(-1).split(rows.lengths)
    for sequence, row in zip(done, logprobs, strict=True):
        at = torch.arange(len(sequence.prompt_ids) - 1, len(row) - 1)
        again = row[at, torch.tensor(sequence.token_ids)]
        torch.testing.assert_close(torch.tensor(sequence.logprobs), again, atol=2e-5, rtol=0)


def test_new_weights_clear_the_cache(loaded):
    """Prefixes that old weights computed are not used."""
    subject = engine(loaded)
    prompt = prompts(60)[0]
    run(subject, one(prompt, max_tokens=2))
    subject.forget()
    assert run(subject, one(prompt, max_tokens=2))[0].num_reused == 0
