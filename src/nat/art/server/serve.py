"""A server for OpenPipe ART's clients: one base model, their adapters on it, one application on two ports."""

import sys
from socket import gethostname

from nat.art.server.experimental import experimental_router
from nat.art.server.models import ArtModels
from nat.art.server.routes import control_router, inference_url
from nat.art.server.served import ServedAnswers
from nat.art.server.serverless import serverless_router
from nat.art.server.submissions import Submissions
from nat.asgi.host_check import HostNames
from nat.asgi.listen import port_of
from nat.backend.inference.engine import Limits
from nat.backend.listen import listen, serve_until_stopped
from nat.backend.lock import claimed
from nat.backend.model import LoraSettings, load_model
from nat.backend.server.app import create_app
from nat.secrets import unredacted
from nat.wire.hosts import host_names, is_everywhere
from nat.wire.serving import ART_API_KEY, ServeOptions


def serve_art(options: ServeOptions, inference_port: int) -> None:
    """Run until told to stop."""
    api_key = ART_API_KEY if options.api_key is None else options.api_key.get_secret_value()
    with (
        listen(options.host, options.port) as control,
        listen(options.host, inference_port, option="--inference_port") as inference,
        claimed(options.art_output_dir),
    ):
        loaded = load_model(
            options.model, dtype=options.dtype, device=options.device, max_seq_length=options.max_seq_length
        )
        models = ArtModels(
            loaded,
            name=options.name,
            output_dir=options.art_output_dir,
            lora=LoraSettings(*options.art_lora),
            seed=options.seed,
            max_models=options.max_models,
            limits=Limits(options.max_num_seqs, prefix_cache_bytes=options.prefix_cache_mb * 2**20),
        )
        try:
            served = ServedAnswers()
            submissions = Submissions(models, served)
            app = create_app(
                models.worker,
                api_key=api_key,
                well_known_key=options.well_known_key,
                answers=served,
                extra_routers=[
                    control_router(submissions, inference_port=port_of(inference), api_key=api_key, host=options.host),
                    experimental_router(models, options.buckets),
                    serverless_router(submissions, base_model=options.name),
                ],
            )
            ports = {"port": port_of(control), "inference_port": port_of(inference)}
            print(greeting(options, **ports, hostname=gethostname()), file=unredacted(sys.stderr))
            serve_until_stopped(
                app,
                [control, inference],
                names=HostNames(options.host, host_names(options.allowed_hosts)),
                exit_with_parent=options.exit_with_parent,
            )
        finally:
            models.close()


def greeting(options: ServeOptions, *, port: int, inference_port: int, hostname: str) -> str:
    """What the person who started it does next; others find a server on all addresses by its machine's name."""
    host = hostname if is_everywhere(options.host) else options.host
    control, inference = (inference_url("", host, number) for number in (port, inference_port))
    control = control.removesuffix("/v1")
    if options.well_known_key:
        client, key = control, f"key: {ART_API_KEY}"
    else:
        client, key = control.replace("://", "://art:KEY@"), "KEY is the key that you chose"
    return (
        f"Serving {options.name} for OpenPipe ART's clients ({key})\n"
        f"  train through   {control}\n"
        f"  sample through  {inference}\n"
        f"  checkpoints in  {options.art_output_dir}/<project>/models/<name>/checkpoints\n"
        f'Next: art.Backend(base_url="{client}"), or `nat finetune` with an openpipe_art_trainer_adapter.'
    )
