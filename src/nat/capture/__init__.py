"""LLM calls recorded at the wire, as intermediate steps of the rollout that made them.

`request` reads a request and adds fields to it, `response` reads the response, whole or streamed, `steps` makes
intermediate steps of the call. `tap` puts these together without an HTTP library; `http` has the clients with a tap,
and `transport` lets them wait for a server that is away. `context` says what applies to a call.
"""
