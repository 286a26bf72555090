"""Where in the tree of function calls a step happened."""

from pydantic import BaseModel, ConfigDict


class InvocationNode(BaseModel):
    """One call of one function; `parent_*` name the call that it was made from."""

    model_config = ConfigDict(extra="forbid")

    function_id: str
    """Unique per call."""
    function_name: str
    """The function's key in the YAML, `<workflow>` for the workflow itself, `root` outside of any."""
    parent_id: str | None = None
    parent_name: str | None = None
