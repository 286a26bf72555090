"""Import paths of plug-ins; what they name lives in `nat.config` and `nat.builder`."""

from nat.utils.one_shot import run_workflow

__all__ = ["run_workflow"]
