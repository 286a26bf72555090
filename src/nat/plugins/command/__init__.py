"""A program as workflow: run once per example, in a folder of its own, with the gateway as its model server."""
