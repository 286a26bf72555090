"""Run a workflow on one input: with bounded concurrency and a deadline; a failure is a record."""
