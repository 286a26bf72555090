"""The speed of a model is predicted from that of some of its layers."""

import pytest
from transformers import CONFIG_MAPPING

from nat.backend import layer_times
from nat.backend.layer_times import speed_by_layers
from nat.backend.small_model import judge_layers
from nat.sizing.forecast import Speed
from nat.sizing.memory import Setup, Workload

LOAD = Workload(2, 64, 64, step_tokens=128, sampled_share=0.25)
SIZES = {"vocab_size": 320, "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}


def config_of(family, layers=12):
    return CONFIG_MAPPING[family](**SIZES, intermediate_size=64, num_hidden_layers=layers, pad_token_id=0)


@pytest.fixture
def models(monkeypatch):
    """The models whose speed was measured; a step takes 1 s and 0.1 s for each layer, and the others in proportion."""
    seen = []

    def measured(engine, learner, workload, resolved, *, seconds):
        loaded = engine.loaded
        seen.append((loaded, workload.chats))
        taken = 1 + 0.1 * loaded.model.config.get_text_config().num_hidden_layers
        return Speed(
            chats=2,
            prompt_tokens_per_second=100 / taken,
            step_seconds=taken,
            trained_tokens=64,
            trained_tokens_per_second=10 / taken,
            optimizer_seconds=2 * taken,
        )

    monkeypatch.setattr(layer_times, "measured_speed", measured)
    return seen


def test_each_further_layer_takes_what_those_of_two_models_differ_by(models):
    """Two and eight of twelve layers are measured."""
    speed = speed_by_layers(config_of("llama"), Setup("cpu", "float32"), LOAD, plain=None, context=128)
    assert [loaded.model.config.num_hidden_layers for loaded, _ in models] == [8, 2]
    assert speed.step_seconds == pytest.approx(2.2)
    assert speed.prompt_tokens_per_second == pytest.approx(100 / 2.2)
    assert speed.trained_tokens_per_second == pytest.approx(10 / 2.2)
    assert speed.optimizer_seconds == pytest.approx(4.4)


def test_a_model_of_few_layers_is_measured_whole(models):
    """Nothing is left to predict."""
    speed_by_layers(config_of("llama", layers=2), Setup("cpu", "float32"), LOAD, plain=None, context=128)
    assert len(models) == 1


def test_large_layers_are_fewer(models, monkeypatch):
    """What two models weigh decides; two layers there are always, if the model has them."""
    monkeypatch.setattr(layer_times, "_WEIGHTS", 10)
    speed_by_layers(config_of("llama"), Setup("cpu", "float32"), LOAD, plain=None, context=128)
    assert [loaded.model.config.num_hidden_layers for loaded, _ in models] == [2, 1]


def test_a_model_of_the_plain_path_is_measured_on_it(models):
    """With the cache that was proven; layers of several kinds keep their order."""
    config = CONFIG_MAPPING["qwen3_5_text"](**SIZES, intermediate_size=64, num_hidden_layers=12, pad_token_id=0)
    _, plain = judge_layers(config, 128)
    speed_by_layers(config, Setup("cpu", "float32"), LOAD, plain=plain, context=128)
    assert [loaded.plain for loaded, _ in models] == [plain, plain]
    assert models[1][0].model.config.layer_types == config.layer_types[:2]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_runs_as_the_backend_does(dtype):
    """Real speeds; they end within the time that is given to them, and are all known."""
    speed = speed_by_layers(config_of("llama", layers=4), Setup("cpu", dtype), LOAD, plain=None, context=128)
    assert speed.chats == 2
    assert min(speed.prompt_tokens_per_second, speed.step_seconds, speed.trained_tokens_per_second) > 0
