"""An agent's own server as workflow: it gets a request per example, with the gateway as its model server."""
