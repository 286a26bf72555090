"""What a client requested for its model becomes our settings; the rest is named."""

from nat.art.server.model_factory import lora_of, without_effect
from nat.art.wire import InternalModelConfig
from nat.backend.lora import LoraSettings

DEFAULT = LoraSettings(8, 16)


def requested(**blocks):
    return InternalModelConfig.model_validate(blocks)


def test_the_client_decides_about_its_adapter():
    """Rank and scale win one by one over how the server was started; nulls and absence request nothing."""
    assert lora_of(requested(), DEFAULT) == DEFAULT
    assert lora_of(requested(peft_args=None), DEFAULT) == DEFAULT
    assert lora_of(requested(peft_args={"r": 4}), DEFAULT) == LoraSettings(4, 16)
    assert lora_of(requested(peft_args={"r": 4, "lora_alpha": 5}), DEFAULT) == LoraSettings(4, 5)


def test_the_longest_row_is_read():
    """It is `init_args.max_seq_length`, if the client sent one."""
    assert requested().max_seq_length is None
    assert requested(init_args={}).max_seq_length is None
    assert requested(init_args={"max_seq_length": 64}).max_seq_length == 64


def test_what_has_no_effect_is_named():
    """Each with its block, and only settings that the client sent."""
    assert without_effect(requested()) == []
    assert (
        without_effect(requested(init_args={"max_seq_length": 64}, peft_args={"r": 4}, trainer_args={"beta": 0})) == []
    )
    said = requested(
        init_args={"max_seq_length": 64, "load_in_4bit": True},
        engine_args={"gpu_memory_utilization": 0.9, "tensor_parallel_size": None},
        peft_args={"use_rslora": True},
        torchtune_args={"model": "qwen2_5_3b"},
    )
    assert without_effect(said) == [
        "init_args.load_in_4bit",
        "engine_args.gpu_memory_utilization",
        "peft_args.use_rslora",
        "torchtune_args.model",
    ]
