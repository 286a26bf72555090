"""Names of models: which may become folders, and what the name in a request asks for. Pure."""

import re
from dataclasses import dataclass

from nat.art.wire import ArtModel

_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ARTIFACT = re.compile(r"wandb-artifact:///[^/]+/([^/]+)/([^/:]+)(?::(?:step([0-9]{1,9})|latest))?")
_STEP = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class ModelKey:
    """What tells two models apart: projects may use the same name."""

    project: str
    name: str

    def __str__(self) -> str:
        return f"{self.project}/{self.name}"


@dataclass(frozen=True)
class Wanted:
    """What a name asks for; without a step the newest weights, without a project those that were prepared last."""

    name: str
    project: str | None = None
    step: int | None = None


def key_of(model: ArtModel) -> ModelKey:
    """Check the names with which a client registers.

    Raises:
        ValueError: one of them cannot be a folder's name.

    """
    for what, text in (("project", model.project), ("name", model.name)):
        if _FOLDER.fullmatch(text) is None:
            raise ValueError(
                f"{what} {text!r} cannot name a folder: wanted are letters, digits, '.', '_' and '-', "
                "at most 128, the first one a letter or a digit"
            )
    return ModelKey(model.project, model.name)


def parse(text: str) -> Wanted:
    """Read `name`, `name@3`, `name@latest`, or a reference of ART's serverless client."""
    if artifact := _ARTIFACT.fullmatch(text):
        project, name, step = artifact.groups()
        return Wanted(name, project, None if step is None else int(step))
    name, at, version = text.rpartition("@")
    if at and version == "latest":
        return Wanted(name)
    if at and _STEP.fullmatch(version):
        return Wanted(name, step=int(version))
    return Wanted(text)


def version(name: str, step: int) -> str:
    """What the weights after `step` training calls are called."""
    return f"{name}@{step}"


def artifact(entity: str, key: ModelKey, step: int | None) -> str:
    """What ART's serverless client calls them."""
    return f"wandb-artifact:///{entity}/{key.project}/{key.name}" + ("" if step is None else f":step{step}")
