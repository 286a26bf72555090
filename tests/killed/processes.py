"""The programs of the processes: `nat` and its backend as they are, with points at which they can be killed."""

import asyncio
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

from fakes.finetuning_project import blank_plot
from killed.agents import register
from killed.faults import watch

HARNESS, BACKEND = "HARNESS", "BACKEND"
PROGRAM = "import nat.cli.main; from killed.processes import {0}; {0}()"
"""Imports what the tests fork."""
BACKEND_PID, BATCHES, AGAIN = "backend.pid", "batches", "again"


def harness() -> None:
    """`nat`, whose backend can be killed, too."""
    from nat.cli.commands import finetune
    from nat.cli.main import run_cli
    from nat.plugins.local import llm

    watch(HARNESS)
    command = (sys.executable, "-c", PROGRAM.format("backend"))
    llm.running_backend = partial(llm.running_backend, command=command)
    run = finetune.run_finetuning

    async def run_finetuning(*given: Any, **more: Any) -> Any:
        return await run(*given, **more, plotter=blank_plot)

    finetune.run_finetuning = run_finetuning
    register()
    run_cli()


def backend() -> None:
    """`python -m nat.backend`, which also keeps a copy of each batch that it has accepted."""
    from nat.backend.__main__ import main
    from nat.backend.training.accepted_jobs import AcceptedJobs

    _round_always_alike()
    Path(BACKEND_PID).write_text(str(os.getpid()))
    add = AcceptedJobs.add

    def add_and_copy(self: AcceptedJobs, job: Any) -> None:
        add(self, job)
        Path(BATCHES).mkdir(exist_ok=True)
        shutil.copyfile(self._paths[job.id], Path(BATCHES) / f"{job.id}.json")

    AcceptedJobs.add = add_and_copy
    watch(BACKEND)
    sys.exit(main())


def train_again() -> None:
    """Train the model on the copied batches alone, in a run of its own."""
    from fakes.backend_here import backend_here
    from nat.plugins.local.client import BackendClient
    from nat.wire.serving import ServeOptions
    from nat.wire.training import TrainingJob

    _round_always_alike()
    options = ServeOptions(model=Path("model"), output_dir=Path(AGAIN), threads=1, device="cpu")

    batches = [path.read_bytes() for path in sorted(Path(BATCHES).iterdir())]

    async def train() -> None:
        async with (
            backend_here(options) as served,
            BackendClient(served.base_url, served.api_key) as client,
        ):
            for batch in batches:
                job = TrainingJob.model_validate_json(batch)
                await client.submit(job)
                while not (await client.job(job.id, wait=10)).status.final:
                    pass

    asyncio.run(train())


def _round_always_alike() -> None:
    """Do not choose matrix products by measuring, which may choose other ones in another process."""
    import torch

    from nat.backend import products

    torch.set_num_threads(1)
    products.fastest = lambda _whose, packers, _trial: next(iter(packers.values()))
