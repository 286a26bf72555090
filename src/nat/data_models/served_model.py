"""A trained model that its server keeps."""

from pydantic import BaseModel, ConfigDict


class ServedModel(BaseModel):
    """Where the weights of a run are when no folder holds them, and how a workflow asks for them."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    name: str
    """Name of these very weights, such as `my_run@20`."""
    base_url: str
    """Where they are served."""
    overrides: tuple[tuple[str, str], ...] = ()
    """Pairs of dotted path and value that let the run's YAML use them."""

    def __str__(self) -> str:
        return f"{self.name} at {self.base_url}"
