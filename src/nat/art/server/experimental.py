"""ART's `_experimental` routes: copies of a model's folder in S3, and what no server here can do, with the reason."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from fastapi import APIRouter
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from nat.art.server import s3
from nat.art.server.bodies import nothing, refusals
from nat.art.server.port import Models
from nat.art.wire import ArtBucketRequest
from nat.backend.server.bodies import read
from nat.http.errors import ApiError

_BUCKET = TypeAdapter(ArtBucketRequest)


def experimental_router(models: Models, buckets: Sequence[str]) -> APIRouter:
    """Pull, push, deploy, fork; copies go to and come from `buckets` only."""
    routes = _Routes(models, buckets)
    router = APIRouter()
    router.add_route("/_experimental_pull_from_s3", routes.pull, methods=["POST"])
    router.add_route("/_experimental_push_to_s3", routes.push, methods=["POST"])
    router.add_route("/_experimental_deploy", routes.deploy, methods=["POST"])
    router.add_route("/_experimental_fork_checkpoint", routes.fork, methods=["POST"])
    return router


class _Routes:
    def __init__(self, models: Models, buckets: Sequence[str]) -> None:
        self._models = models
        self._buckets = buckets

    async def pull(self, http: Request) -> Response:
        asked, here, there = await self._places(http)
        here.mkdir(parents=True, exist_ok=True)
        return await self._sync(asked, there, str(here))

    async def push(self, http: Request) -> Response:
        asked, here, there = await self._places(http)
        if not here.is_dir():
            raise ApiError(f"{asked.model.name} has no checkpoint here yet; prepare it first", status=409)
        return await self._sync(asked, str(here), there)

    async def deploy(self, _: Request) -> Response:
        raise ApiError(
            "this server deploys to no provider; a checkpoint's folder is a peft adapter: upload it yourself, "
            "or copy it to S3 with _experimental_push_to_s3"
        )

    async def fork(self, _: Request) -> Response:
        raise ApiError(
            "no ART server forks a checkpoint over HTTP; copy the folder checkpoints/NNNN into the folder of the "
            "new model before it is prepared",
            status=404,
        )

    async def _places(self, http: Request) -> tuple[ArtBucketRequest, Path, str]:
        asked = await read(http, _BUCKET)
        with refusals():
            folder = self._models.folder(asked.model)
        return asked, folder, s3.address(asked, self._buckets)

    @staticmethod
    async def _sync(asked: ArtBucketRequest, source: str, target: str) -> Response:
        program = shutil.which("aws")
        if program is None:
            raise ApiError("this server has no `aws` command; install the AWS CLI on its machine", status=501)
        await s3.run(s3.sync_command(program, source, target, delete=asked.delete, verbose=asked.verbose))
        return nothing()
