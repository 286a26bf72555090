"""ART's `_experimental` routes: copy a model's folder to or from S3 with the `aws` command; refuse deploy and fork.

No shell takes part in a copy, and every name in it is checked.
"""

import asyncio
import logging
import re
import shutil
from collections.abc import Sequence
from subprocess import DEVNULL, PIPE, STDOUT

from fastapi import APIRouter
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nat.art.server.models import ArtModels
from nat.art.wire import ArtBucketRequest
from nat.backend.server.bodies import read
from nat.http.errors import ApiError
from nat.secrets import redact

logger = logging.getLogger(__name__)

_BUCKET = TypeAdapter(ArtBucketRequest)
_PREFIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_OUTPUT_CHARS = 500
"""Of the command's output in an error."""


def experimental_router(models: ArtModels, buckets: Sequence[str]) -> APIRouter:
    """Pull, push, deploy, fork; copies go to and come from `buckets` only."""
    routes = _ExperimentalRoutes(models, buckets)
    router = APIRouter()
    router.add_route("/_experimental_pull_from_s3", routes.pull, methods=["POST"])
    router.add_route("/_experimental_push_to_s3", routes.push, methods=["POST"])
    router.add_route("/_experimental_deploy", routes.deploy, methods=["POST"])
    router.add_route("/_experimental_fork_checkpoint", routes.fork, methods=["POST"])
    return router


class _ExperimentalRoutes:
    def __init__(self, models: ArtModels, buckets: Sequence[str]) -> None:
        self._models = models
        self._buckets = buckets

    async def pull(self, http: Request) -> Response:
        request = await read(http, _BUCKET)
        folder, address = self._models.folder(request.model), s3_address(request, self._buckets)
        folder.mkdir(parents=True, exist_ok=True)
        return await self._sync(request, address, str(folder))

    async def push(self, http: Request) -> Response:
        request = await read(http, _BUCKET)
        folder, address = self._models.folder(request.model), s3_address(request, self._buckets)
        if not folder.is_dir():
            raise ApiError(f"{request.model.name} has no checkpoint here yet; prepare it first", status=409)
        return await self._sync(request, str(folder), address)

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

    @staticmethod
    async def _sync(request: ArtBucketRequest, source: str, target: str) -> Response:
        if (program := shutil.which("aws")) is None:
            raise ApiError("this server has no `aws` command; install the AWS CLI on its machine", status=501)
        await run(sync_command(program, source, target, delete=request.delete, verbose=request.verbose))
        return JSONResponse(None)


def s3_address(request: ArtBucketRequest, buckets: Sequence[str]) -> str:
    """Where the model is in S3: in one of the owner's `buckets`, in the first if the request names none.

    Raises:
        ApiError: the bucket is not one of them, or the prefix is not a name that S3 has.

    """
    if not buckets:
        message = "this server copies nothing to or from S3; its owner can name buckets with --s3_buckets"
        raise ApiError(message, status=403, param="s3_bucket")
    bucket = request.s3_bucket or buckets[0]
    if bucket not in buckets:
        named = ", ".join(buckets)
        message = f"s3_bucket {bucket!r} is not one of those that the server's owner named: {named}"
        raise ApiError(message, status=403, param="s3_bucket")
    prefix = (request.prefix or "").strip("/")
    if prefix and _PREFIX.fullmatch(prefix) is None:
        allowed = "names of letters, digits, '.', '_' and '-', with '/' between them"
        raise ApiError(f"prefix {prefix!r} must be {allowed}", param="prefix")
    return "/".join(filter(None, [f"s3://{bucket}", prefix, request.model.project, "models", request.model.name]))


def sync_command(program: str, source: str, target: str, *, delete: bool, verbose: bool) -> list[str]:
    """The command that makes `target` like `source`; `delete` removes there what is missing here."""
    flags = [*(["--delete"] if delete else []), *([] if verbose else ["--only-show-errors"])]
    return [program, "s3", "sync", source, target, *flags]


async def run(command: list[str]) -> None:
    """Run a command to its end; its output goes to the log.

    Raises:
        ApiError: 502, with the end of the output.

    """
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT)
    output = (await process.communicate())[0].decode(errors="replace").strip()
    if output:
        logger.info("%s", output)
    if process.returncode:
        raise ApiError(f"`{' '.join(command)}` failed: {redact(output)[-_OUTPUT_CHARS:]}", status=502)
