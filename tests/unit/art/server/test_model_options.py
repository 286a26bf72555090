"""Options of a client's model become our settings; unsupported options are reported."""

from nat.art.server.model_options import lora_of, notes_on
from nat.art.wire import InternalModelConfig
from nat.backend.lora import LoraSettings

DEFAULT = LoraSettings(8, 16)


def requested(**blocks):
    return InternalModelConfig.model_validate(blocks)


def test_the_client_decides_about_its_adapter():
    """The client's rank and scale override the server's; null and absent keys do not."""
    assert lora_of(requested(), DEFAULT) == DEFAULT
    assert lora_of(requested(peft_args=None), DEFAULT) == DEFAULT
    assert lora_of(requested(peft_args={"r": 4}), DEFAULT) == LoraSettings(4, 16)
    assert lora_of(requested(peft_args={"r": 4, "lora_alpha": 5}), DEFAULT) == LoraSettings(4, 5)


def test_the_longest_row_is_read():
    """`init_args.max_seq_length` limits the length of a row."""
    assert requested().max_seq_length is None
    assert requested(init_args={}).max_seq_length is None
    assert requested(init_args={"max_seq_length": 64}).max_seq_length == 64


def test_options_without_effect_are_named():
    """The note names each option that the client sent with its block, and a length that the model does not have."""
    assert notes_on(requested(), limit=64) == []
    used = {"init_args": {"max_seq_length": 64}, "peft_args": {"r": 4}, "trainer_args": {"beta": 0}}
    assert notes_on(requested(**used), limit=64) == []
    assert notes_on(requested(**used), limit=63) == ["init_args.max_seq_length is 64; this model has 63 tokens."]
    said = requested(
        init_args={"max_seq_length": 64, "load_in_4bit": True},
        engine_args={"gpu_memory_utilization": 0.9, "tensor_parallel_size": None},
        peft_args={"use_rslora": True},
        torchtune_args={"model": "qwen2_5_3b"},
    )
    assert notes_on(said, limit=64) == [
        (
            "These have no effect on this server: init_args.load_in_4bit, engine_args.gpu_memory_utilization, "
            "peft_args.use_rslora, torchtune_args.model."
        )
    ]
