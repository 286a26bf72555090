"""The bodies of requests, from the YAML. Pure; unset fields are left out, since ART's servers fail on nulls."""

from collections.abc import Sequence
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from nat.art.client.config import ARTBackendConfig, ARTTrainingConfig
from nat.art.wire import (
    ArtDevTrainConfig,
    ArtModel,
    ArtTrainConfig,
    ArtTrainRequest,
    ArtTrajectoryGroup,
    InternalModelConfig,
    OptimizerArgs,
    TrainerArgs,
)
from nat.wire.json import without_surrogates

_OPTIMIZER = set(OptimizerArgs.model_fields)
_CONFIG = set(ArtTrainConfig.model_fields)


def art_model(backend: ARTBackendConfig, training: ARTTrainingConfig) -> ArtModel:
    """The model to register; learning rate and beta are in each training request instead."""
    optimizer = training.model_dump(include=_OPTIMIZER, exclude_none=True)
    blocks = {
        "init_args": backend.init_args,
        "engine_args": backend.engine_args,
        "peft_args": backend.peft_args,
        "trainer_args": TrainerArgs(**optimizer) if optimizer else None,
        "torchtune_args": backend.torchtune_args,
    }
    requested = {name: value for name, value in blocks.items() if value is not None}
    model = ArtModel(name=backend.name, project=backend.project, trainable=True, base_model=backend.base_model)
    return model.model_copy(update={"internal_config": InternalModelConfig(**requested)}) if requested else model


def model_body(model: ArtModel) -> dict[str, Any]:
    """The model as JSON."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)


def prepare_body(model: ArtModel, backend: ARTBackendConfig) -> dict[str, Any]:
    """POST /_prepare_backend_for_training."""
    body: dict[str, Any] = {"model": model_body(model)}
    if backend.server_config is not None:
        body["config"] = backend.server_config.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    return body


def train_body(model: ArtModel, groups: Sequence[ArtTrajectoryGroup], training: ARTTrainingConfig) -> bytes:
    """POST /_train_model; `dev_config` has only the options that the YAML sets."""
    options = ArtDevTrainConfig.model_fields.keys() - _CONFIG
    request = ArtTrainRequest(
        model=model,
        trajectory_groups=list(groups),
        config=ArtTrainConfig(**training.model_dump(include=_CONFIG, exclude_none=True)),
        dev_config=ArtDevTrainConfig(**training.model_dump(include=options, exclude_unset=True, exclude_none=True)),
        verbose=False,
    )
    try:
        return request.model_dump_json(by_alias=True, exclude_none=True, exclude_unset=True).encode()
    except PydanticSerializationError:
        return to_json(without_surrogates(request.model_dump(by_alias=True, exclude_none=True, exclude_unset=True)))
