"""The YAML of adapter and trainer."""

import pytest
from pydantic import ValidationError

from nat.plugins.customizer.dpo.config import NeMoCustomizerTrainerAdapterConfig, NeMoCustomizerTrainerConfig

REQUIRED = {"entity_host": "https://nmp.example.com/", "namespace": "n", "customization_config": "meta/llama@v1+A100"}
MICROSERVICES = {**REQUIRED, "datastore_host": "https://data.example.com/"}
PLATFORM = {**REQUIRED, "api": "platform", "customization_config": "default/llama"}


def test_the_defaults_are_those_of_the_plug_in():
    """What the toolkit's 1.9.0 uses when a field is left out, we use too."""
    config = NeMoCustomizerTrainerAdapterConfig(**MICROSERVICES)
    assert (config.entity_host, config.datastore_host) == ("https://nmp.example.com", "https://data.example.com")
    assert config.hyperparameters.model_dump() == {
        "training_type": "dpo",
        "finetuning_type": "all_weights",
        "epochs": 3,
        "batch_size": 4,
        "learning_rate": 5e-5,
        "dpo": {
            "ref_policy_kl_penalty": 0.1,
            "preference_loss_weight": 1.0,
            "preference_average_log_probs": False,
            "sft_loss_weight": 0.0,
        },
    }
    assert config.deployment_config.image_name == "nvcr.io/nim/nvidia/nemotron-3.5-lightning-30b-a3b"
    assert (config.poll_interval_seconds, config.deployment_timeout_seconds) == (30, 1800)
    trainer = NeMoCustomizerTrainerConfig()
    assert (trainer.num_runs, trainer.max_pairs, trainer.deduplicate_pairs) == (1, None, True)
    assert (trainer.continue_on_collection_error, trainer.wait_for_completion) == (False, True)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (REQUIRED, "datastore_host is not set"),
        (PLATFORM | {"datastore_host": "http://d"}, "have no effect with api 'platform'"),
        (PLATFORM | {"hf_token": "t"}, "have no effect with api 'platform'"),
        (PLATFORM | {"hyperparameters": {"training_type": "sft"}}, "for SFT use api 'microservices'"),
        (PLATFORM | {"hyperparameters": {"finetuning_type": "lora"}}, "set finetuning_type: all_weights"),
        (PLATFORM | {"deploy_on_completion": True}, "deploy_on_completion is for api 'microservices'"),
        (PLATFORM | {"customization_config": "meta/llama@v1"}, "must name a model as 'workspace/name'"),
        (MICROSERVICES | {"namespace": "a/b"}, "namespace"),
        (MICROSERVICES | {"entity_host": "nmp.example.com"}, "must begin with http"),
        (MICROSERVICES | {"max_consecutive_status_failures": 11}, "less than or equal to 10"),
        (MICROSERVICES | {"training_timeout_seconds": 0}, "greater than 0"),
    ],
)
def test_settings_that_cannot_work_are_errors(settings, text):
    """A setting that the chosen service would not obey is refused with the reason."""
    with pytest.raises(ValidationError, match=text):
        NeMoCustomizerTrainerAdapterConfig(**settings)
