"""`nat serve`: a workflow behind HTTP, on the toolkit's routes and OpenAI's.

The only package of the harness that imports FastAPI; `nat serve` imports it when it runs.
"""
