"""The YAML of adapter and trainer."""

import pytest
from pydantic import ValidationError

from nat.plugins.customizer.dpo.config import NeMoCustomizerTrainerAdapterConfig, NeMoCustomizerTrainerConfig

REQUIRED = {"entity_host": "https://nmp.example.com/", "namespace": "n", "customization_config": "meta/llama@v1+A100"}
SERVICES = {**REQUIRED, "datastore_host": "https://data.example.com/"}


def test_the_defaults_are_those_of_the_plug_in():
    """What the toolkit's 1.9.0 uses when a field is left out, we use too."""
    config = NeMoCustomizerTrainerAdapterConfig(**SERVICES)
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
        (REQUIRED, "datastore_host"),
        (SERVICES | {"namespace": "a/b"}, "namespace"),
        (SERVICES | {"entity_host": "nmp.example.com"}, "must begin with http"),
        (SERVICES | {"max_consecutive_status_failures": 11}, "less than or equal to 10"),
        (SERVICES | {"training_timeout_seconds": 0}, "greater than 0"),
    ],
)
def test_settings_that_cannot_work_are_errors(settings, text):
    """A setting that the service would not obey is refused with the reason."""
    with pytest.raises(ValidationError, match=text):
        NeMoCustomizerTrainerAdapterConfig(**settings)
