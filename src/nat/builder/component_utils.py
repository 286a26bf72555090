"""Names that stand for no key of a YAML."""

WORKFLOW_COMPONENT_NAME = "<workflow>"
"""The workflow's name as a function."""

ROOT_COMPONENT_NAME = "root"
"""The ancestry of what happens outside of any function."""
