"""YAML settings of NeMo Customizer's trainer adapter and trainer.

Names and defaults are those of the toolkit's plug-in; fields that it does not have are `api_key`, `output_model`,
`training_timeout_seconds` and `resume`.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from nat.data_models.common import ComparableSecretStr
from nat.data_models.finetuning import TrainerAdapterConfig, TrainerConfig
from nat.files import UserPathText
from nat.finetuning.preferences.builder import DPOTrajectoryBuilderConfig

__all__ = [
    "DPOSpecificHyperparameters",
    "DPOTrajectoryBuilderConfig",
    "NIMDeploymentConfig",
    "NeMoCustomizerHyperparameters",
    "NeMoCustomizerTrainerAdapterConfig",
    "NeMoCustomizerTrainerConfig",
]

NAME = r"^[\w\-.]+$"
"""A name that the services accept, and that is one segment of a URL's path."""
Name = Annotated[str, Field(pattern=NAME, max_length=200)]


class CustomizerModel(BaseModel):
    """Base of the blocks inside a component; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, protected_namespaces=())


class DPOSpecificHyperparameters(CustomizerModel):
    """The loss: `preference_loss_weight` x DPO + `sft_loss_weight` x negative log likelihood of the chosen response."""

    ref_policy_kl_penalty: float = Field(default=0.1, ge=0.0)
    """Weight of the KL divergence to the starting model; TRL calls it `beta`."""
    preference_loss_weight: float = Field(default=1.0, ge=0.0)
    """Weight of the preference loss."""
    preference_average_log_probs: bool = False
    """Divide the log probability of a response by its length."""
    sft_loss_weight: float = Field(default=0.0, ge=0.0)
    """Weight of the negative log likelihood of the chosen response."""


class NeMoCustomizerHyperparameters(CustomizerModel):
    """What the service trains, and how long."""

    training_type: Literal["sft", "dpo"] = "dpo"
    """`dpo` trains on pairs; `sft` on their chosen responses alone."""
    finetuning_type: Literal["lora", "all_weights"] = "all_weights"
    """Train an adapter, or all weights."""
    epochs: int = Field(default=3, ge=1)
    """Passes over the pairs."""
    batch_size: int = Field(default=4, ge=1)
    """Pairs of one gradient step."""
    learning_rate: float = Field(default=5e-5, gt=0.0)
    """Learning rate of the optimizer."""
    dpo: DPOSpecificHyperparameters = DPOSpecificHyperparameters()
    """The loss of `training_type: dpo`; not sent with `sft`."""


class NIMDeploymentConfig(CustomizerModel):
    """How the trained model is deployed."""

    image_name: str = "nvcr.io/nim/nvidia/nemotron-3.5-lightning-30b-a3b"
    """Container image of the inference server; it must suit the trained model."""
    image_tag: str = "latest"
    """Tag of the image."""
    gpu: int = Field(default=1, ge=1)
    """GPUs of the deployment."""
    deployment_name: str | None = Field(default=None, pattern=NAME, max_length=200)
    """Name of the deployment; null makes one of the run's id."""
    description: str = "Fine-tuned model deployment"
    """Description of the deployment."""


class NeMoCustomizerTrainerAdapterConfig(TrainerAdapterConfig, name="nemo_customizer_trainer_adapter"):
    """Trains on preference pairs with NeMo Customizer, in one job per run."""

    usual_trajectory_builder = "dpo_traj_builder"
    usual_trainer = "nemo_customizer_trainer"

    entity_host: str
    """URL of the service: jobs, deployments and names."""
    datastore_host: str
    """URL of the Data Store, which takes the files."""
    hf_token: ComparableSecretStr = ComparableSecretStr("")
    """Token of the Data Store; empty sends none."""
    api_key: ComparableSecretStr = ComparableSecretStr("")
    """Bearer token for `entity_host`; empty sends none."""
    namespace: Name
    """Namespace of dataset, job, model and deployment."""
    dataset_name: Name = "nat-dpo"
    """Name of the dataset; each run adds its id, so that runs never share one."""
    dataset_output_dir: UserPathText | None = None
    """Folder that gets a copy of the uploaded files, in a folder per run; null keeps no copy."""
    create_namespace_if_missing: bool = True
    """Create the namespace before the run."""
    customization_config: str = Field(min_length=1)
    """What to train: a customization config such as `meta/llama-3.2-1b-instruct@v1.0.0+A100`."""
    output_model: str | None = None
    """Name of the trained model, `namespace/name`; null makes one of dataset and run."""
    hyperparameters: NeMoCustomizerHyperparameters = NeMoCustomizerHyperparameters()
    """What the service trains, and how long."""
    use_full_message_history: bool = False
    """The prompt of a pair: true sends all messages; false sends the last turn and the system prompt."""
    deploy_on_completion: bool = False
    """Deploy the trained model, and wait until it is ready."""
    deployment_config: NIMDeploymentConfig = NIMDeploymentConfig()
    """How it is deployed, if it is."""
    poll_interval_seconds: float = Field(default=30.0, gt=0)
    """Seconds between two checks of a status."""
    training_timeout_seconds: float = Field(default=86400.0, gt=0)
    """Seconds that the job may take, its time in the queue included; then it is canceled."""
    deployment_timeout_seconds: float = Field(default=1800.0, gt=0)
    """Seconds until the deployment must be ready."""
    max_consecutive_status_failures: int = Field(default=3, ge=1, le=10)
    """Checks in a row that may fail, or give a status that is not known, before the run ends."""

    @field_validator("entity_host", "datastore_host")
    @classmethod
    def _is_a_url(cls, url: str) -> str:
        if not url.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        return url.rstrip("/")


class NeMoCustomizerTrainerConfig(TrainerConfig, name="nemo_customizer_trainer"):
    """Collects preference pairs, submits them as one job, and waits for it."""

    num_runs: int = Field(default=1, ge=1)
    """Passes over the dataset that collect pairs; `finetuning.num_epochs` has no effect."""
    continue_on_collection_error: bool = False
    """Go on with the next pass when one fails."""
    deduplicate_pairs: bool = True
    """Drop pairs with equal prompt, chosen and rejected response."""
    max_pairs: int | None = Field(default=None, ge=1)
    """Train on at most so many pairs, drawn by `finetuning.seed`; null for all."""
    wait_for_completion: bool = True
    """Wait for the job; false ends the run when the job is submitted, without a verdict."""
    resume: str | None = None
    """Id or folder of a run whose job to wait for, instead of collecting pairs and submitting a new job."""
