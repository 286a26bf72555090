"""Run a workflow on a dataset, score its answers, and write reports."""
