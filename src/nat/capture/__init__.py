"""LLM calls recorded at the wire, as intermediate steps of the rollout that made them.

`request` reads a request and adds fields to it, `response` reads the response, `events` joins a streamed one, `steps`
makes intermediate steps of the call. `tap` puts these together without an HTTP library, and `http` is the tap on an
httpx client. The caller chooses who receives the steps, so this package does not depend on the builder.
"""
