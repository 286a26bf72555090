"""A program as workflow: it runs once per example, in a new folder, with the gateway as its model server."""
