"""A workflow behind HTTP: the toolkit's routes and OpenAI's, for people, for chat clients and for remote rollouts.

The only package of the harness that imports FastAPI; `nat serve` imports it when it runs.
"""
