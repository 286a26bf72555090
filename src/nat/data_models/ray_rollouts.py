"""Where rollouts are played, if not in this process."""

from pydantic import BaseModel, ConfigDict, Field


class RayRollouts(BaseModel):
    """Play rollouts in processes of a Ray cluster."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    ray: str = "auto"
    """Address of the cluster, such as `10.0.0.1:6379`; `auto`: the one that `RAY_ADDRESS` names or that runs on this
    machine, or else one that lives as long as the run."""
    workers: int = Field(ge=1)
    """Processes, each with a workflow of its own; together they play `eval.general.max_concurrency` rollouts."""
    resources_per_worker: dict[str, float] = {"CPU": 1.0}
    """What Ray reserves for a process, by Ray's names."""
