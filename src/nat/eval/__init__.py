"""A dataset through a workflow to scores and report files."""
