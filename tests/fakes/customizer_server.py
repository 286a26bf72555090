"""NeMo Customizer's microservices on one real socket; they train nothing.

    async with FakeCustomizer() as server:
        config = NeMoCustomizerTrainerAdapterConfig(entity_host=server.base_url, datastore_host=server.base_url, …)

Routes, bodies and statuses of the microservices are those that the toolkit's plug-in 1.6.0 and 1.9.0 and the client
`nemo-microservices` 1.5.0 use; `conformance/customizer` proves it with the releases themselves. Options
make it slow, broken or unusual.
"""

import asyncio
import base64
import json
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from fakes.http_server import HttpServer, SeenRequest, write_json

NOW = "2026-11-22T10:00:00Z"
Answer = tuple[int, Any]


class FakeCustomizer(HttpServer):
    """All services at one address; records all requests."""

    def __init__(
        self,
        *,
        statuses: Sequence[dict[str, Any] | Answer] = (
            {"status": "running", "percentage_done": 50.0},
            {"status": "completed", "percentage_done": 100.0, "steps_completed": 6},
        ),
        deployment_statuses: Sequence[str] = ("pending", "ready"),
        token: str | None = None,
        key: str | None = None,
        output_model: bool = True,
        upload_mode: str = "regular",
        page_size: int = 100,
        other_deployments: int = 0,
        refusals: dict[str, Answer] | None = None,
        models: Sequence[str] = (),
    ) -> None:
        """Configure the behaviour.

        `statuses` are the answers about a job in order, the last one for ever; a tuple is a status of HTTP and a body.
        `token` is what the Data Store wants, `key` what the other services want. `refusals` maps "METHOD path" to an
        answer. `models` are listed at /v1/models, with those that are deployed.
        """
        super().__init__()
        self.requests: list[SeenRequest] = []
        self.namespaces: set[str] = set()
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.datasets: list[dict[str, Any]] = []
        self.jobs: list[dict[str, Any]] = []
        self.canceled: list[str] = []
        self.deployments: list[dict[str, Any]] = [
            _deployment(f"other-{number}", "others", "others/c", "ready") for number in range(other_deployments)
        ]
        self.deployment_configs: list[dict[str, Any]] = []
        self.objects: dict[str, bytes] = {}
        self.creating: asyncio.Event | None = None
        """While this is set and not reached, a job is accepted but the answer waits."""
        self.accepted = asyncio.Event()
        self.polled = asyncio.Event()
        self.loses_answers = 0
        """So many submissions are accepted and the connection then dropped."""
        self.refusals = refusals or {}
        self._statuses = list(statuses)
        self._deployment_statuses = list(deployment_statuses)
        self._token, self._key = token, key
        self._output_model, self._upload_mode, self._page_size = output_model, upload_mode, page_size
        self._models = list(models)

    @property
    def paths(self) -> list[str]:
        """Method and path of all requests, in order."""
        return [f"{request.method} {urlsplit(request.path).path}" for request in self.requests]

    def bodies(self, path: str) -> list[dict[str, Any]]:
        """The JSON bodies that were posted to a path."""
        return [r.body for r in self.requests if (r.method, urlsplit(r.path).path) == ("POST", path)]

    def rows(self, repository: str, path: str) -> list[dict[str, Any]]:
        """The rows of an uploaded file."""
        stored = self.repositories[repository][path]
        return [json.loads(line) for line in stored.decode().splitlines()]

    async def answer(self, request: SeenRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        del reader
        self.requests.append(request)
        parts = urlsplit(request.path)
        path, query = unquote(parts.path), parse_qs(parts.query)
        status, body = self._refusal(request, path) or self._routed(request, path, query)
        if request.method == "POST" and path.endswith("/jobs") and status < 300:
            self.accepted.set()
            if self.creating is not None:
                await self.creating.wait()
            if self.loses_answers:
                self.loses_answers -= 1
                return False
        if path.endswith("/status"):
            self.polled.set()
        write_json(writer, status, body)
        return True

    def _refusal(self, request: SeenRequest, path: str) -> Answer | None:
        if (given := self.refusals.get(f"{request.method} {path}")) is not None:
            return given
        wanted = self._token if path.startswith("/v1/hf") else self._key
        if path == "/v1/models" or wanted is None or request.headers.get("authorization") == f"Bearer {wanted}":
            return None
        return 401, {"detail": "Invalid credentials"}

    def _routed(self, request: SeenRequest, path: str, query: dict[str, list[str]]) -> Answer:
        for method, pattern, handle in self._routes():
            found = re.fullmatch(pattern, path)
            if request.method == method and found is not None:
                return handle(request, query, *found.groups())
        return 404, {"detail": "Not Found"}

    def _routes(self):
        return [
            ("POST", "/v1/namespaces", self._create_namespace),
            ("POST", "/v1/datastore/namespaces", self._create_store_namespace),
            ("POST", "/v1/hf/api/repos/create", self._create_repository),
            ("GET", "/v1/hf/api/datasets/([^/]+/[^/]+)/revision/main", self._revision),
            ("POST", "/v1/hf/api/datasets/([^/]+/[^/]+)/preupload/main", self._preupload),
            ("POST", "/v1/hf/api/datasets/([^/]+/[^/]+)/commit/main", self._commit),
            ("POST", r"/v1/hf/datasets/([^/]+/[^/]+)\.git/info/lfs/objects/batch", self._batch),
            ("PUT", "/objects/([0-9a-f]+)", self._put_object),
            ("POST", "/objects/([0-9a-f]+)/verify", self._verify_object),
            ("POST", "/v1/datasets", self._create_dataset),
            ("POST", "/v1/customization/jobs", self._create_job),
            ("GET", "/v1/customization/jobs", lambda _, query: (200, self._page(self.jobs, query))),
            ("GET", "/v1/customization/jobs/([^/]+)", lambda _, __, name: self._job(name)),
            ("GET", "/v1/customization/jobs/([^/]+)/status", lambda *_: self._status()),
            ("POST", "/v1/customization/jobs/([^/]+)/cancel", self._cancel),
            ("POST", "/v1/deployment/configs", self._create_deployment_config),
            ("POST", "/v1/deployment/model-deployments", self._create_deployment),
            ("GET", "/v1/deployment/model-deployments", self._list_deployments),
            ("GET", "/v1/models", self._list_models),
        ]

    # Entity Store and Data Store

    def _create_namespace(self, request: SeenRequest, _) -> Answer:
        name = request.body["id"]
        if name in self.namespaces:
            return 409, {"detail": f"Namespace {name} already exists"}
        self.namespaces.add(name)
        return 200, {"id": name, "created_at": NOW}

    def _create_store_namespace(self, request: SeenRequest, _) -> Answer:
        (name,) = parse_qs(request.raw.decode())["namespace"]
        return 201, {"namespace": name}

    def _create_repository(self, request: SeenRequest, _) -> Answer:
        name = f"{request.body['organization']}/{request.body['name']}"
        url = f"{self.base_url}/v1/hf/datasets/{name}"
        if name in self.repositories:
            return 409, {"error": "You already created this dataset repo", "url": url}
        self.repositories[name] = {}
        return 200, {"url": url, "name": name}

    def _revision(self, _, __, name: str) -> Answer:
        return (200, {"id": name, "sha": "0" * 40}) if name in self.repositories else (404, {"error": "Not Found"})

    def _preupload(self, request: SeenRequest, _, name: str) -> Answer:
        assert name in self.repositories
        entries = [
            {"path": file["path"], "uploadMode": self._upload_mode, "shouldIgnore": False, "oid": None}
            for file in request.body["files"]
        ]
        return 200, {"files": entries}

    def _commit(self, request: SeenRequest, _, name: str) -> Answer:
        files = self.repositories[name]
        for line in map(json.loads, request.raw.decode().splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.objects[value["oid"]]
        commit = f"{len(self.requests):040x}"
        # Relative: huggingface_hub 0.36 reads no URL of another host than the Hub's, and 1.x reads both.
        return 200, {"success": True, "commitOid": commit, "commitUrl": f"datasets/{name}/commit/{commit}"}

    def _batch(self, request: SeenRequest, _, __) -> Answer:
        assert request.body["operation"] == "upload"
        objects = [
            {
                **entry,
                "actions": {
                    "upload": {"href": f"{self.base_url}/objects/{entry['oid']}"},
                    "verify": {"href": f"{self.base_url}/objects/{entry['oid']}/verify"},
                },
            }
            for entry in request.body["objects"]
        ]
        return 200, {"transfer": "basic", "objects": objects}

    def _put_object(self, request: SeenRequest, _, oid: str) -> Answer:
        self.objects[oid] = request.raw
        return 200, {}

    def _verify_object(self, request: SeenRequest, _, oid: str) -> Answer:
        return (200, {}) if len(self.objects[oid]) == request.body["size"] else (422, {"detail": "wrong size"})

    def _create_dataset(self, request: SeenRequest, _) -> Answer:
        keys = [(each["namespace"], each["name"]) for each in self.datasets]
        if (request.body["namespace"], request.body["name"]) in keys:
            return 409, {"detail": "Dataset already exists"}
        self.datasets.append(request.body)
        return 200, {**request.body, "id": f"dataset-{len(self.datasets)}", "created_at": NOW}

    # Customizer

    def _create_job(self, request: SeenRequest, _) -> Answer:
        job = {
            **request.body,
            "id": f"cust-{len(self.jobs) + 1}",
            "status": "created",
            "created_at": NOW,
            "updated_at": NOW,
        }
        if not self._output_model:
            job["output_model"] = None
        elif job.get("output_model") is None:
            job["output_model"] = f"default/{job['id']}"  # as services do that name it themselves
        self.jobs.append(job)
        return 200, job

    def _job(self, name: str) -> Answer:
        for job in self.jobs:
            if name in {job.get("id"), job.get("name")}:
                return 200, job
        return 404, {"detail": f"Job {name} not found"}

    def _status(self) -> Answer:
        found = self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]
        if isinstance(found, tuple):
            return found
        return 200, {"created_at": NOW, "updated_at": NOW, **found}

    def _cancel(self, _, __, name: str) -> Answer:
        self.canceled.append(name)
        self._statuses = [{"status": "cancelled"}]
        return 200, self._job(name)[1]

    # Deployment Management

    def _create_deployment_config(self, request: SeenRequest, _) -> Answer:
        if request.body["name"] in {each["name"] for each in self.deployment_configs}:
            return 409, {"detail": "Config already exists"}
        self.deployment_configs.append(request.body)
        return 200, {**request.body, "created_at": NOW}

    def _create_deployment(self, request: SeenRequest, _) -> Answer:
        body = request.body
        if body["name"] in {each["name"] for each in self.deployments}:
            return 409, {"detail": "Deployment already exists"}
        self.deployments.append(_deployment(body["name"], body["namespace"], body["config"], "created"))
        return 200, self.deployments[-1]

    def _list_deployments(self, _, query: dict[str, list[str]]) -> Answer:
        for each in self.deployments:
            if each["namespace"] != "others" and query.get("page", ["1"]) == ["1"]:
                states = self._deployment_statuses
                word = states.pop(0) if len(states) > 1 else states[0]
                each["status_details"] = {"status": word, "description": f"It is {word}.\n"}
        return 200, self._page(self.deployments, query)

    def _list_models(self, *_) -> Answer:
        ready = [each["model"] for each in self.deployment_configs]
        return 200, {"object": "list", "data": [{"id": name, "object": "model"} for name in [*self._models, *ready]]}

    def _page(self, entries: list[dict[str, Any]], query: dict[str, list[str]]) -> dict[str, Any]:
        page = int(query.get("page", ["1"])[0])
        size = min(self._page_size, int(query.get("page_size", ["100"])[0]))
        shown = entries[(page - 1) * size : page * size]
        total = -(-len(entries) // size)
        pagination = {
            "page": page,
            "page_size": size,
            "current_page_size": len(shown),
            "total_pages": total,
            "total_results": len(entries),
        }
        return {"object": "list", "data": shown, "pagination": pagination}


def _deployment(name: str, namespace: str, config: str, status: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": namespace,
        "config": config,
        "url": f"http://nim/{name}",
        "status_details": {"status": status, "description": ""},
    }
