"""LLM calls taken off the wire: what was asked and what was answered, as steps of the rollout that asked.

`request` and `answer` read the two sides, `events` joins a stream into what the same answer unstreamed would have
been, `asks` adds what the agent did not say, `steps` words it all as intermediate steps, `tap` puts these together
without knowing an HTTP library, and `http` is the tap on an httpx client. Who receives the steps is the caller's
choice, so that this package stands beside the builder and not on it.
"""
