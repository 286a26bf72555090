"""One input through a workflow: bounded, with a deadline; a failure is a record."""
