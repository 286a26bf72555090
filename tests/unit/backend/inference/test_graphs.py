"""Steps as CUDA graphs give what steps without them give, on a fake device that repeats what was recorded."""

import pytest
import torch

from fakes.cuda_graphs import FakeGraphs
from fakes.fake_device import FakeDevice
from fakes.listeners import one, run
from nat.backend.inference.engine import Engine, EngineLimits
from nat.backend.inference.graphs import padded_number
from nat.backend.lora import Adapters, LoraSettings
from nat.backend.model_loader import load_model


@pytest.fixture
def cuda(monkeypatch):
    """A GPU whose graphs are fakes."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with FakeDevice("cuda") as fake:
        yield FakeGraphs(monkeypatch, fake)


def engine(loaded, *, graphs=True, max_step_tokens=None, **options):
    limits = EngineLimits(8, max_step_tokens=max_step_tokens, graphs=graphs)
    return Engine(loaded, policy_version="m@0", limits=limits, **options)


def chat(number, tokens, length=5, **params):
    return one(list(range(number, number + length)), max_tokens=tokens, seed=number, ignore_eos=True, **params)


def steps(engine, count=1_000):
    while engine.has_work and count:
        engine.step()
        count -= 1


@torch.no_grad()
def change(model):
    """Train the weights that are trained, in place."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.mul_(1.1).add_(0.01)


def answers(cuda, loaded, **options):
    """Chats that join, end, are cancelled and outgrow the slots, prompts between, and chats after an update."""
    sampler = engine(loaded, **options)
    chats = [chat(n, 6 + 2 * n, top_logprobs=2) for n in range(5)]
    canceled, late, last = chat(7, 90), chat(8, 70, length=60, top_p=0.9), [chat(n, 6, temperature=0.0) for n in (1, 2)]
    for joining, count in [(chats, 5), ([canceled], 5), ([late], 5)]:
        for each in joining:
            sampler.add(each)
        steps(sampler, count)
    sampler.cancel(canceled)
    steps(sampler)
    sampler.release()
    assert cuda is None or not cuda.alive, "an update needs their memory"
    loaded.linears.forget()
    change(loaded.model)
    run(sampler, *last)
    return [sequence for each in (*chats, canceled, late, *last) for sequence in each.sequences]


def assert_same(found, expected):
    for one_of, other in zip(found, expected, strict=True):
        assert one_of.token_ids == other.token_ids
        assert [[token for token, _ in each] for each in one_of.top_logprobs] == [
            [token for token, _ in each] for each in other.top_logprobs
        ]
        torch.testing.assert_close(one_of.logprobs, other.logprobs, atol=1e-4, rtol=0)


@pytest.fixture
def load(tiny_dir):
    def load(kind="qwen3", **options):
        return load_model(tiny_dir(kind), device="cuda", dtype="float32", **options)

    return load


@pytest.mark.parametrize(
    ("kind", "lora"), [("qwen3", None), ("qwen3", LoraSettings(4)), ("mistral", None), ("gemma3", None), ("gpt2", None)]
)
def test_answers_are_those_without_graphs(cuda, load, caplog, kind, lora):
    """Chats come and go, the cache grows, weights change in place: tokens and log probabilities stay the same.

    Few graphs are recorded for many steps.
    """
    assert_same(answers(cuda, load(kind, lora=lora)), answers(cuda, load(kind, lora=lora), graphs=False))
    assert 0 < cuda.recorded < 12
    assert cuda.replays > 60
    assert "CUDA graphs" not in caplog.text


def crowded_answers(loaded, **options):
    """A prompt waits until others have decoded; its beginning is in its slot, after theirs, from the start."""
    sampler = engine(loaded, max_step_tokens=5, **options)
    run(sampler, chat(9, 2, length=40))
    chats, waiting = [chat(n, 12) for n in range(5)], chat(9, 6, length=40)
    for each in chats:
        sampler.add(each)
    steps(sampler, 8)
    run(sampler, waiting)
    assert waiting.sequences[0].num_reused
    return [sequence for each in (*chats, waiting) for sequence in each.sequences]


def test_no_padding_is_computed_in_a_slot_that_has_a_prompt(cuda, load):
    """Such steps are no graphs, since the number of sequences would be padded."""
    assert_same(crowded_answers(load()), crowded_answers(load(), graphs=False))
    assert cuda.replays


def test_a_graph_of_a_step_without_padding_is_right_for_one_with(cuda, load, caplog):
    """One sequence that fills all cells needs no mask; a shorter one does, in the same graph."""
    sampler, plain = engine(load()), engine(load(), graphs=False)
    for number, length in ((1, 70), (2, 63), (3, 5)):
        found, expected = (run(each, chat(number, 9, length=length)) for each in (sampler, plain))
        assert_same(found, expected)
    assert "CUDA graphs" not in caplog.text


def adapted_answers(loaded, *, graphs):
    """Two adapters and the base in turn; one is trained and one is removed meanwhile."""
    adapters = Adapters(loaded)
    made = [None, adapters.create(LoraSettings(4), seed=1), adapters.create(LoraSettings(2), seed=2)]
    for name, parameter in loaded.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(parameter.shape[1]))
    engines = [
        engine(each.loaded if each else loaded, graphs=graphs, activate=lambda each=each: adapters.activate(each))
        for each in made
    ]
    chats = [chat(n, 40) for n in range(3)]
    for sampler, each in zip(engines, chats, strict=True):
        sampler.add(each)
    for step in range(8):
        if step == 4:
            change(loaded.model)
            loaded.linears.forget()
        for sampler in engines:
            steps(sampler, 3)
    copies = loaded.linears.state
    adapters.remove(made[2])
    assert loaded.linears.state is not copies, "those of the removed adapter take memory"
    for _ in range(8):
        for sampler in engines[:2]:
            steps(sampler, 2)
    return [sequence for each in chats for sequence in each.sequences]


def test_adapters_have_graphs_of_their_own(cuda, load, caplog):
    """Each reads its own matrices, and no memory that an update or a removed adapter has freed."""
    assert_same(adapted_answers(load(), graphs=True), adapted_answers(load(), graphs=False))
    assert cuda.replays > 60
    assert "CUDA graphs" not in caplog.text


def fail_in_recording(cuda, loaded):
    cuda.failing = RuntimeError("out of memory")
    return "RuntimeError: out of memory"


def change_nothing_in_replays(cuda, loaded):
    cuda.frozen = True
    return "logits differ by"


def wait_for_the_device(cuda, loaded):
    norm = loaded.model.model.norm
    usual = norm.forward
    vars(norm)["forward"] = lambda x: usual(x) * float(x.sum().item() != 1e30)
    return "_local_scalar_dense.default waits for the device"


@pytest.mark.parametrize("fault", [fail_in_recording, change_nothing_in_replays, wait_for_the_device])
def test_a_fault_ends_graphs_with_one_notice(cuda, load, caplog, fault):
    """All engines of the model go on as without graphs. A step that waits for the device is not recorded at all."""
    loaded = load()
    expected = answers(cuda, load(), graphs=False)
    why = fault(cuda, loaded)
    assert_same(answers(cuda, loaded), expected)
    recorded = cuda.recorded
    assert recorded == (fault is change_nothing_in_replays)
    run(engine(loaded), chat(1, 9))
    assert cuda.recorded == recorded
    [notice] = [each.getMessage() for each in caplog.records if "CUDA graphs" in each.getMessage()]
    assert why in notice


@pytest.mark.parametrize(("device", "graphs"), [("cpu", True), ("cuda", False)])
def test_a_cpu_has_no_graphs_and_neither_has_an_engine_without(cuda, tiny_dir, device, graphs):
    """Nothing is recorded."""
    run(engine(load_model(tiny_dir("qwen3"), device=device), graphs=graphs), chat(1, 9))
    assert (cuda.recorded, cuda.replays) == (0, 0)


def test_sequences_are_padded_by_half_at_most():
    """A device sees few numbers of sequences, and small ones as they are."""
    found = [padded_number(n) for n in range(1, 65)]
    assert list(dict.fromkeys(found)) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
    assert all(n <= padded < 1.5 * n for n, padded in enumerate(found, 1))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("lora", [None, LoraSettings(4)], ids=["all weights", "lora"])
def test_a_real_gpu_repeats_its_graphs(load, caplog, lora):
    """It records all steps, and samples what it samples without graphs."""
    sampled = [answers(None, load(lora=lora), graphs=graphs) for graphs in (True, False)]
    assert "CUDA graphs" not in caplog.text
    for one_of, other in zip(*sampled, strict=True):
        torch.testing.assert_close(one_of.logprobs[:8], other.logprobs[:8], atol=2e-2, rtol=0)
