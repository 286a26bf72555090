"""Open the server for ART's clients: one base model, their adapters, and one application on two ports."""

from collections.abc import Iterator
from contextlib import contextmanager
from socket import gethostname

from nat.art.options import API_KEY, ArtServeOptions
from nat.art.server.models import ArtModels
from nat.art.server.routes import control_router, inference_url
from nat.art.server.served_answers import ServedAnswers
from nat.art.server.serverless import serverless_router
from nat.art.server.submissions import Submissions
from nat.backend.models import load_base
from nat.backend.protocol import Endpoint, Opened
from nat.wire.hosts import is_everywhere


@contextmanager
def open_art(options: ArtServeOptions, endpoint: Endpoint) -> Iterator[Opened]:
    """Load the base model; clients' adapters are made or restored on request."""
    models = ArtModels(load_base(options), options)
    try:
        served = ServedAnswers()
        submissions = Submissions(models, served)
        inference_port = endpoint.ports["inference_port"]
        yield Opened(
            models.worker,
            [
                control_router(submissions, inference_port=inference_port, api_key=endpoint.api_key, host=options.host),
                serverless_router(submissions, base_model=options.name),
            ],
            answers=served,
            greeting=greeting(options, **endpoint.ports, hostname=gethostname()),
        )
    finally:
        models.close()


def greeting(options: ArtServeOptions, *, port: int, inference_port: int, hostname: str) -> str:
    """How to connect to the server; if it listens on all addresses, by its machine's name."""
    host = hostname if is_everywhere(options.host) else options.host
    control, inference = (inference_url("", host, number) for number in (port, inference_port))
    control = control.removesuffix("/v1")
    if options.key_is_well_known:
        client, key = control, f"key: {API_KEY}"
    else:
        client, key = control.replace("://", "://art:KEY@"), "KEY is the key that you chose"
    return (
        f"Serving {options.name} for OpenPipe ART's clients ({key})\n"
        f"  train through   {control}\n"
        f"  sample through  {inference}\n"
        f"  checkpoints in  {options.output_dir}/<project>/models/<name>/checkpoints\n"
        f'Next: art.Backend(base_url="{client}"), or `nat finetune` with an openpipe_art_trainer_adapter.'
    )
