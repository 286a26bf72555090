"""What `--dry_run` says of the engines: only what was measured on this machine."""

from pathlib import Path

import pytest

from fakes.forecasts import FORECAST, SPEED
from nat.plugins.local.engine_speed import engine_advice


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """The cache of a user who has none yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "nat" / "speed"


def forecast(*, tokens_per_second=40.0, chats=4, **changes):
    """A forecast whose sampler reached so many tokens per second, with prompts of 200 tokens."""
    speed = {"chats": chats, "prompt_tokens": 200, "step_seconds": chats / tokens_per_second}
    return FORECAST.model_copy(update={"speed": SPEED.model_copy(update=speed)} | changes)


def advice(engine, threads=None, **changes):
    return engine_advice(engine, forecast(**changes), threads=threads)


@pytest.mark.parametrize(
    ("engine", "remedy"),
    [
        ("embedded", "vllm was not measured here: repeat this with `engine: vllm`, see docs/recipes/vllm.md"),
        ("vllm", "embedded was not measured here: repeat this with `engine: embedded` and without the keys of vLLM"),
    ],
)
def test_of_an_engine_that_was_not_measured_it_says_how_to_measure_it(engine, remedy):
    """Nothing is claimed of the other engine, however often the same one is measured."""
    for _ in range(2):
        text = advice(engine)
        assert text.startswith(
            f"measured here: {engine} sampled 40.0 tokens per second with 4 chats (prompt tokens: 200); "
        )
        assert remedy in text


def test_two_engines_that_were_measured_here_are_compared(cache):
    """The figures of both have their load and day; what is kept has numbers alone, for its owner alone."""
    advice("vllm", tokens_per_second=50.0)
    text = advice("embedded")
    assert text.startswith(
        "measured here: embedded sampled 40.0 tokens per second with 4 chats (prompt tokens: 200), vllm 50.0 "
    )
    assert text.endswith("; embedded gave 0.80 times as many")
    assert sorted(path.suffixes[0] for path in cache.iterdir()) == [".embedded", ".vllm"]
    assert {path.stat().st_mode & 0o077 for path in cache.iterdir()} == {0}


def test_the_last_measurement_counts():
    """A newer figure of an engine replaces the one before."""
    assert "50,000.0 tokens per second" in advice("vllm", tokens_per_second=50_000.0)
    advice("vllm", tokens_per_second=20.0)
    assert advice("embedded").endswith("; embedded gave 2.00 times as many")


def test_different_loads_are_not_compared():
    """More chats at the same time give more tokens per second with any engine."""
    advice("vllm", chats=8)
    text = advice("embedded")
    assert "with 8 chats (prompt tokens: 200)" in text
    assert "different loads cannot be compared: repeat this with `engine: vllm`" in text
    assert "times" not in text


@pytest.mark.parametrize(
    "other",
    [{"device": "cuda"}, {"capacity": 1}, {"dtype": "bfloat16"}, {"num_parameters": 7}, {"threads": 1}],
    ids=str,
)
def test_another_machine_or_model_has_figures_of_its_own(other):
    """What was measured for another one is not brought up."""
    advice("vllm", **other)
    assert "vllm was not measured here" in advice("embedded")


@pytest.mark.parametrize("speed", [None, SPEED.model_copy(update={"chats": 0})])
def test_nothing_is_said_without_a_measurement(cache, speed):
    """Without figures of the sampler there is neither a sentence nor a file."""
    assert engine_advice("embedded", FORECAST.model_copy(update={"speed": speed}), threads=None) is None
    assert not cache.exists()


def test_a_damaged_memory_is_none(cache):
    """A file that cannot be read counts as not measured, and the next measurement replaces it."""
    advice("vllm")
    [file] = cache.iterdir()
    file.write_text("{")
    assert "vllm was not measured here" in advice("embedded")


def test_a_cache_that_cannot_be_written_is_no_error(cache):
    """A file in place of the folder, as a home that is read-only, only leaves no memory."""
    cache.parent.mkdir(parents=True)
    cache.write_text("")
    assert "vllm was not measured here" in advice("embedded")
    assert cache.read_text() == ""
