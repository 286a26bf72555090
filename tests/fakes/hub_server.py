"""The part of the Hugging Face Hub's API that downloads a model, on folders of this machine.

async with HubServer({"owner/name": folder}) as hub:
    environment = {"HF_ENDPOINT": hub.base_url}
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote, urlsplit

from fakes.http_server import HttpServer, SeenRequest, write_body, write_json

_API = re.compile(r"/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)")
_FILE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


@dataclass
class Repository:
    """A model of the Hub; its only commit is made of its files' names and contents."""

    folder: Path
    branches: tuple[str, ...] = ("main",)
    error_code: str | None = None
    """The Hub's `X-Error-Code` for each request without a token."""

    @property
    def files(self) -> dict[str, bytes]:
        found = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}

    @property
    def commit(self) -> str:
        return sha256(repr(self.files).encode()).hexdigest()[:40]


@dataclass
class HubServer(HttpServer):
    """Serves the repositories, and remembers which files were downloaded."""

    repositories: Mapping[str, Repository]
    downloads: list[str] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    async def answer(self, request: SeenRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        del reader
        path = unquote(urlsplit(request.path).path)
        found = _API.fullmatch(path) or _FILE.fullmatch(path)
        if found is None:
            write_json(writer, 404, {"error": "Not Found"})
            return True
        token = request.headers.get("authorization")
        self.tokens.append(token)
        repository = self.repositories.get(found[1])
        code = "RepoNotFound" if repository is None else repository.error_code if token is None else None
        if repository is None or code is not None:
            write_json(writer, 403 if code == "GatedRepo" else 401, {"error": str(code)}, {"X-Error-Code": str(code)})
        elif path.startswith("/api/"):
            self._describe(writer, repository, kind=found[2], revision=found[3])
        else:
            self._send(writer, request, repository, name=found[3])
        return True

    def _describe(self, writer: asyncio.StreamWriter, repository: Repository, *, kind: str, revision: str) -> None:
        if revision not in {*repository.branches, repository.commit}:
            write_json(writer, 404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})
        elif kind == "revision":
            siblings = [{"rfilename": name} for name in repository.files]
            write_json(writer, 200, {"id": "m", "sha": repository.commit, "siblings": siblings})
        else:
            tree = [
                {"type": "file", "path": name, "size": len(content), "oid": _etag(content)}
                for name, content in repository.files.items()
            ]
            write_json(writer, 200, tree)

    def _send(self, writer: asyncio.StreamWriter, request: SeenRequest, repository: Repository, *, name: str) -> None:
        content = repository.files[name]
        headers = {"ETag": f'"{_etag(content)}"', "X-Repo-Commit": repository.commit}
        if request.method == "HEAD":
            write_body(writer, b"", {**headers, "content-length": str(len(content))})
            return
        self.downloads.append(name)
        write_body(writer, content, headers)


def _etag(content: bytes) -> str:
    return sha256(content).hexdigest()[:40]
