"""Upload files to the microservices' Data Store, which speaks the Hugging Face Hub's protocol.

Not with `huggingface_hub`: by default it sends large files to a route that only the Hub has, HF_HUB_OFFLINE ends it,
and it uses proxies that only the environment names.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from http import HTTPStatus

from nat.errors import BackendError
from nat.http.service import Json, ServiceClient
from nat.plugins.customizer.dpo.connection import ServiceConnection

_HUB = "/v1/hf"
_SAMPLE_BYTES = 512
_LFS_JSON = "application/vnd.git-lfs+json"


class DataStore:
    """One namespace of a Data Store."""

    def __init__(self, connection: ServiceConnection, namespace: str, *, outside: ServiceClient) -> None:
        """`outside` sends large files to the addresses that the store names, without its token."""
        self._connection = connection
        self._namespace = namespace
        self._outside = outside

    async def check(self) -> None:
        """Raise unless the store answers and accepts the token; a dataset that is missing says so too."""
        path = f"{_HUB}/api/datasets/{self._namespace}/nat-check/revision/main"
        await self._connection.send("GET", path, accept=[HTTPStatus.NOT_FOUND])

    async def ensure_namespace(self) -> None:
        exists = [HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY]
        data = {"namespace": self._namespace}
        await self._connection.send("POST", "/v1/datastore/namespaces", accept=exists, data=data)

    async def upload(self, name: str, files: Mapping[str, bytes], summary: str) -> None:
        """Create the dataset with these files, in one commit.

        Raises:
            ServiceRefused: a dataset of that name exists, or the store refuses the files.

        """
        repository = f"{self._namespace}/{name}"
        created = {"name": name, "organization": self._namespace, "type": "dataset"}
        await self._connection.send("POST", f"{_HUB}/api/repos/create", retries=0, json=created)
        asked = [
            {"path": path, "sample": _text(content[:_SAMPLE_BYTES]), "size": len(content)}
            for path, content in files.items()
        ]
        answer = await self._connection.json(
            "POST", f"{_HUB}/api/datasets/{repository}/preupload/main", json={"files": asked}
        )
        modes = {entry.get("path"): entry.get("uploadMode") for entry in answer.get("files") or []}
        large = {path: content for path, content in files.items() if modes.get(path) == "lfs"}
        if large:
            await self._upload_large(repository, large)
        lines: list[Json] = [{"key": "header", "value": {"summary": summary, "description": ""}}]
        lines += [_entry(path, content, large=path in large) for path, content in files.items()]
        await self._connection.send(
            "POST",
            f"{_HUB}/api/datasets/{repository}/commit/main",
            content="\n".join(map(json.dumps, lines)).encode(),
            headers={"Content-Type": "application/x-ndjson"},
        )

    async def _upload_large(self, repository: str, files: Mapping[str, bytes]) -> None:
        """Put the content where Git LFS wants it."""
        by_digest = {_digest(content): content for content in files.values()}
        answer = await self._connection.json(
            "POST",
            f"{_HUB}/datasets/{repository}.git/info/lfs/objects/batch",
            headers={"Accept": _LFS_JSON, "Content-Type": _LFS_JSON},
            content=json.dumps(
                {
                    "operation": "upload",
                    "transfers": ["basic"],
                    "hash_algo": "sha256",
                    "objects": [{"oid": oid, "size": len(content)} for oid, content in by_digest.items()],
                }
            ).encode(),
        )
        for entry in answer.get("objects") or []:
            if "error" in entry:
                raise BackendError(
                    f"the Data Store refuses a file of {len(by_digest[entry['oid']])} bytes: {entry['error']}",
                    hint="the reason is in this answer, or in the store's log",
                )
            actions = entry.get("actions") or {}  # none for content that the store has already
            if upload := actions.get("upload"):
                headers = {"Content-Type": "application/octet-stream", **(upload.get("header") or {})}
                await self._outside.send("PUT", upload["href"], content=by_digest[entry["oid"]], headers=headers)
            if verify := actions.get("verify"):
                headers = {"Content-Type": _LFS_JSON, **(verify.get("header") or {})}
                body = json.dumps({"oid": entry["oid"], "size": entry["size"]})
                await self._outside.send("POST", verify["href"], content=body, headers=headers)


def _entry(path: str, content: bytes, *, large: bool) -> Json:
    """A file in a commit."""
    if large:
        value = {"path": path, "algo": "sha256", "oid": _digest(content), "size": len(content)}
        return {"key": "lfsFile", "value": value}
    return {"key": "file", "value": {"path": path, "content": _text(content), "encoding": "base64"}}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
