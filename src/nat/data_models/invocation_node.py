"""The function call that a step belongs to."""

from pydantic import BaseModel, ConfigDict

WORKFLOW_COMPONENT_NAME = "<workflow>"
"""Name of the workflow as a function."""

ROOT_COMPONENT_NAME = "root"
"""Name of the code outside of any function."""


class InvocationNode(BaseModel):
    """One call of one function; `parent_*` identify the calling function."""

    model_config = ConfigDict(extra="forbid")

    function_id: str
    """Unique per call."""
    function_name: str
    """The function's key in the YAML, `<workflow>` for the workflow itself, `root` outside of any."""
    parent_id: str | None = None
    parent_name: str | None = None
