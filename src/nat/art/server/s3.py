"""Copy a folder to or from S3 with the `aws` command, as ART does; no shell takes part, and names are checked."""

import asyncio
import logging
import re
from collections.abc import Sequence
from subprocess import DEVNULL, PIPE, STDOUT

from nat.art.wire import ArtBucketRequest
from nat.http.errors import ApiError

logger = logging.getLogger(__name__)

_PREFIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_SHOWN = 500


def address(asked: ArtBucketRequest, buckets: Sequence[str]) -> str:
    """Where the model is in S3: in one of the `buckets` that the server's owner named, the first if none is asked for.

    Raises:
        ApiError: the bucket is none of them, or the prefix is no name that S3 has.

    """
    if not buckets:
        message = "this server copies nothing to or from S3; its owner can name buckets with --s3_buckets"
        raise ApiError(message, status=403, param="s3_bucket")
    bucket = asked.s3_bucket or buckets[0]
    if bucket not in buckets:
        named = ", ".join(buckets)
        message = f"s3_bucket {bucket!r} is none of those that the server's owner named: {named}"
        raise ApiError(message, status=403, param="s3_bucket")
    prefix = (asked.prefix or "").strip("/")
    if prefix and _PREFIX.fullmatch(prefix) is None:
        wanted = "names of letters, digits, '.', '_' and '-', with '/' between them"
        raise ApiError(f"prefix {prefix!r}: wanted are {wanted}", param="prefix")
    return "/".join(filter(None, [f"s3://{bucket}", prefix, asked.model.project, "models", asked.model.name]))


def sync_command(program: str, source: str, target: str, *, delete: bool, verbose: bool) -> list[str]:
    """The command that makes `target` like `source`; `delete` removes there what is not here."""
    flags = [*(["--delete"] if delete else []), *([] if verbose else ["--only-show-errors"])]
    return [program, "s3", "sync", source, target, *flags]


async def run(command: list[str]) -> None:
    """Run it to its end; what it says goes to the log.

    Raises:
        ApiError: 502, with the end of what it said.

    """
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT)
    said = (await process.communicate())[0].decode(errors="replace").strip()
    if said:
        logger.info("%s", said)
    if process.returncode:
        raise ApiError(f"`{' '.join(command)}` failed: {said[-_SHOWN:]}", status=502)
