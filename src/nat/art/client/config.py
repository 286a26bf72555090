"""YAML settings of the ART components; `requests` makes request bodies of them."""

from ipaddress import ip_address

from pydantic import BaseModel, ConfigDict, Field, field_validator

from nat.art.wire import ArtDevTrainConfig, ArtTrainConfig, InitArgs, OptimizerArgs, Passed, PeftArgs
from nat.data_models.common import ComparableSecretStr
from nat.data_models.finetuning import TrainerAdapterConfig, TrainerConfig
from nat.finetuning.trajectory_builder import EvalTrajectoryBuilderConfig
from nat.wire.hosts import is_everywhere


class ARTTrajectoryBuilderConfig(EvalTrajectoryBuilderConfig, name="openpipe_art_traj_builder"):
    """Runs the dataset `num_generations` times per epoch and groups the rollouts by example.

    With `num_generations: 1`, all rollouts of an epoch are one group, as in the toolkit.
    """

    @property
    def compares_examples(self) -> bool:
        return self.num_generations == 1


class ARTTrainerConfig(TrainerConfig, name="openpipe_art_trainer"):
    """Trains epoch after epoch; its settings are under `finetuning`."""


class ARTBackendConfig(BaseModel):
    """The ART server, and the model to train on it."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    ip: str = Field(min_length=1)
    """Host name or IP address of the ART server; 0.0.0.0 means this machine."""
    port: int = Field(ge=1, le=65535)
    """Port of the ART server's control routes; the server itself names its inference port."""
    name: str = Field(default="trainer_run", min_length=1)
    """Name of the trained model; a run with the same name and project continues with its weights."""
    project: str = Field(default="trainer_project", min_length=1)
    """Folder of the model on the server."""
    base_model: str = Field(default="Qwen/Qwen2.5-7B-Instruct", min_length=1)
    """The initial model, under the server's name for it."""
    api_key: ComparableSecretStr = ComparableSecretStr("default")
    """Key of the server, `default` if left out; ART's own servers accept any."""
    delete_old_checkpoints: bool = False
    """Before each update, have the server delete all checkpoints but the newest."""
    init_args: InitArgs | None = None
    """How the server loads the model; further keys are passed on."""
    engine_args: Passed | None = None
    """Arguments of vLLM's engine, such as `tensor_parallel_size`; all keys are passed on."""
    peft_args: PeftArgs | None = None
    """The trained adapter; further keys are passed on."""
    torchtune_args: Passed | None = None
    """How servers up to 0.5.7 train all weights with torchtune; all keys are passed on."""
    server_config: Passed | None = None
    """The inference server that ART starts, such as `{log_file: vllm.log, server_args: {port: 8000}}`; all keys are
    passed on to it."""

    @field_validator("ip")
    @classmethod
    def _is_a_host_alone(cls, ip: str) -> str:
        try:
            ip_address(ip)
        except ValueError:
            if any(mark in ip for mark in ":/@ "):
                raise ValueError(
                    f"{ip!r} is more than a host name or an IP address; put the port into `port`"
                ) from None
        return ip

    @property
    def host(self) -> str:
        """The host to connect to, as URLs write it."""
        if is_everywhere(self.ip):
            return "localhost"
        return f"[{self.ip}]" if ":" in self.ip else self.ip

    @property
    def base_url(self) -> str:
        """URL of the control routes."""
        return f"http://{self.host}:{self.port}"


class ARTTrainingConfig(ArtDevTrainConfig, OptimizerArgs, ArtTrainConfig):
    """The algorithm's settings. Unset fields are not sent, so the server's defaults apply."""

    model_config = ConfigDict(extra="forbid")

    learning_rate: float = Field(default=5e-5, gt=0)
    """Learning rate of AdamW."""
    kl_penalty_coef: float = Field(default=0.0, ge=0)
    """Weight of a KL penalty in the advantages (ART from 0.5.16 on)."""


class ARTTrainerAdapterConfig(TrainerAdapterConfig, name="openpipe_art_trainer_adapter"):
    """Trains a model on an OpenPipe ART server: ART's own, or `nat backend serve` in ART mode."""

    usual_trajectory_builder = "openpipe_art_traj_builder"
    usual_trainer = "openpipe_art_trainer"

    backend: ARTBackendConfig
    """The server and the model."""
    training: ARTTrainingConfig | None = None
    """The algorithm of an update."""
    timeout: float = Field(default=3600.0, gt=0)
    """Seconds that an update may take."""
