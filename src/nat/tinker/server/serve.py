"""Open the server for Tinker's clients: one base model, and their adapters on it."""

from collections.abc import Iterator
from contextlib import contextmanager

from nat.backend.models import load_base
from nat.backend.protocol import Endpoint, Opened
from nat.files import remove_unfinished
from nat.tinker.options import TinkerServeOptions
from nat.tinker.server.models import TinkerModels
from nat.tinker.server.routes import tinker_router


@contextmanager
def open_tinker(options: TinkerServeOptions, endpoint: Endpoint) -> Iterator[Opened]:
    """Load the base model; clients' adapters are made or loaded on request."""
    for folder in options.output_dir.glob("*/*/*weights"):
        remove_unfinished(folder)
    models = TinkerModels(load_base(options), options)
    url = f"http://{options.host}:{endpoint.ports['port']}"
    greeting = (
        f"Serving {models.name} for Tinker's clients; saved weights are in {options.output_dir}.\n"
        f'Next: TINKER_BASE_URL={url} TINKER_API_KEY=KEY, then create_lora_training_client("{models.name}").'
    )
    try:
        yield Opened(models.worker, [tinker_router(models)], greeting=greeting)
    finally:
        models.worker.close()
