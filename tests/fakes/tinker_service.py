"""The official Tinker client and a server behind it, as far as we call them, on our own server's models.

It sums losses as Tinker does, or divides them as other servers do; what a client waits for is there at once.
"""

import io
import json
import tarfile
from concurrent.futures import Future
from itertools import count
from time import monotonic
from types import SimpleNamespace
from uuid import uuid4

import httpx
import numpy as np

from nat.backend.inference.sequence import Request, SamplingParams, Sequence
from nat.errors import BackendError
from nat.tinker.server.losses import resolved, rows_of
from nat.tinker.server.models import TinkerModels, WeightsPath
from nat.tinker.server.wire import AdamParams, Batch, Datum
from nat.wire.model_folder import ADAPTER_CONFIG


def done(value):
    future = Future()
    future.set_result(value)
    return future


TYPES = SimpleNamespace(
    ModelInput=SimpleNamespace(from_ints=list),
    SamplingParams=SimpleNamespace,
    AdamParams=dict,
    TensorData=lambda data, dtype: np.array(data, "<i8" if dtype == "int64" else "<f4"),
    Datum=SimpleNamespace,
)


class FakeTinker:
    """The client of a server; `divides` is what it divides losses by: nothing, `rows` or `tokens`."""

    def __init__(
        self, models: TinkerModels, *, divides="", clips=True, has_adam=True, fails=(), archives=False, spoils=dict
    ):
        """`archives` may be the content of each archive, or a status; `spoils` changes the fields of an answer."""
        self.spoils, self.asked_for_archives = spoils, 0
        self.has_adam = has_adam
        self.models, self.divides, self.clips, self.fails = models, divides, clips, set(fails)
        self.archives = archives
        self.steps, self.deleted = [], []
        self.sampled = []
        self._session, self._numbers = uuid4().hex, count()

    def create_lora_training_client(self, base_model, *, rank, seed):
        return self._opened(lambda model_id: self.models.create(model_id, rank, seed))

    def create_training_client_from_state(self, path, *, optimizer=False):
        return self._opened(lambda model_id: self.models.load(model_id, WeightsPath.parse(path), optimizer=optimizer))

    def _opened(self, begin):
        self.models.heard[self._session] = monotonic()
        model_id = self.new_id()
        try:
            begin(model_id).result()
        except BackendError as error:
            raise RuntimeError(error.in_line) from error
        return FakeAdapter(self, model_id)

    def create_training_client_from_state_with_optimizer(self, path):
        return self.create_training_client_from_state(path, optimizer=True)

    def create_rest_client(self):
        return self

    def get_weights_info_by_tinker_path(self, path):
        return done(SimpleNamespace(is_lora=self.models.rank(WeightsPath.parse(path)) > 0))

    def create_sampling_client(self, *, base_model):
        return FakeSampler(self, "")

    def get(self, request):
        """Weights saved for sampling, by a redirect; the archive lacks `target_modules`, as SkyRL's does."""
        url = request.url
        if url.path.endswith("/unload_model"):
            self.models.unload(json.loads(request.content)["model_id"]).result()
            return httpx.Response(200)
        if request.method == "DELETE":
            self.deleted.append(tuple(url.path.partition("/training_runs/")[2].split("/checkpoints/")))
            raise httpx.ConnectError("the server has ended its connection", request=request)
        self.asked_for_archives += url.path.endswith("/archive")
        match self.archives:
            case bool() if not self.archives:
                return httpx.Response(404)
            case bytes():
                return httpx.Response(200, content=self.archives)
            case int() if self.archives is not True:
                return httpx.Response(self.archives)
        if url.path.endswith("/archive"):
            assert request.headers["x-api-key"] == "tml-key"
            return httpx.Response(
                302,
                headers={"location": f"http://files.example{url.path.removesuffix('archive')}signed"},
                request=request,
            )
        assert "x-api-key" not in request.headers
        run, name = url.path.split("/")[-4], url.path.split("/")[-2]
        files, content = self.models.files(WeightsPath(run, "sampler_weights", name)), io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as archive:
            for file in files:
                if file.name != ADAPTER_CONFIG:
                    archive.add(file, f"exported/{file.name}")
                    continue
                config = json.loads(file.read_text())
                del config["target_modules"]
                config = json.dumps(config).encode()
                entry = tarfile.TarInfo(f"exported/{file.name}")
                entry.size = len(config)
                archive.addfile(entry, io.BytesIO(config))
        return httpx.Response(200, content=content.getvalue())

    def new_id(self):
        return f"{self._session}:train:{next(self._numbers)}"


class FakeAdapter:
    def __init__(self, server, model_id):
        self.server, self.model_id = server, model_id

    def forward(self, data, loss, config=None):
        return self.forward_backward(data, loss, config, gradient=False)

    def forward_backward(self, data, loss, config=None, *, gradient=True):
        tokens = sum(len(each.model_input) for each in data)
        sent = []
        for each in data:
            share = {"rows": len(each.model_input) * len(data), "tokens": tokens}.get(self.server.divides, 1)
            inputs = each.loss_fn_inputs
            sent.append(Datum(np.array(each.model_input), inputs | {"advantages": inputs["advantages"] / share}))
        batch = Batch(self.model_id, 0, sent, loss, config or {}, not gradient)
        rows = rows_of(batch, self.server.models.base)
        work = self.server.models.accumulate(self.model_id, rows, resolved(loss, config or {}), gradient=gradient)
        _, scored = work.result()
        found = [np.zeros(len(each.model_input), "<f4") for each in data]
        for row in rows:
            found[row.rollout][row.positions] = scored[row.index].float().numpy()
        outputs = [{"logprobs": SimpleNamespace(data=own.tolist())} for own in found]
        return done(SimpleNamespace(loss_fn_outputs=outputs))

    def optim_step(self, adam):
        if "optim_step" in self.server.fails:
            raise RuntimeError("the planted failure")
        self.server.steps.append(adam)
        if not self.server.has_adam:
            adam |= {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
        adam = adam if self.server.clips else adam | {"grad_clip_norm": 0.0}
        found = self.server.models.step(self.model_id, AdamParams(**adam)).result()
        return done(SimpleNamespace(metrics={"fake/grad_norm": found["grad_norm"]}))

    def save_state(self, name):
        return self._saved("weights", name)

    def save_weights_for_sampler(self, name):
        return self._saved("sampler_weights", name)

    def save_weights_and_get_sampling_client(self):
        return done(FakeSampler(self.server, self.save_weights_for_sampler(uuid4().hex).result().path))

    def _saved(self, kind, name):
        path = WeightsPath(self.model_id, kind, name)
        self.server.models.save(path, overwrite=False).result()
        return done(SimpleNamespace(path=str(path)))


class FakeSampler:
    def __init__(self, server, path):
        self.server, self.path = server, path

    def sample(self, prompt, num_samples, params):
        self.server.sampled.append(params)
        wanted = SamplingParams(
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            top_p=params.top_p,
            seed=params.seed,
            ignore_eos=True,
            stop_token_ids=frozenset(params.stop),
            untempered=True,
        )
        sequence = Sequence(0, prompt, wanted)
        self._run(sequence)
        found = {"tokens": sequence.token_ids, "logprobs": sequence.logprobs, "stop_reason": sequence.finish_reason}
        return done(SimpleNamespace(sequences=[SimpleNamespace(**self.server.spoils(found))]))

    def compute_logprobs(self, token_ids):
        sequence = Sequence(0, token_ids, SamplingParams(max_tokens=1, prompt_logprobs=0))
        self._run(sequence)
        return done([None, *(own.logprob for own, *_ in sequence.prompt_scores)])

    def _run(self, sequence):
        finished = Future()
        listener = SimpleNamespace(
            on_deltas=lambda _: None, on_finished=lambda: finished.set_result(None), on_failed=finished.set_exception
        )
        self.server.models.worker.submit(Request([sequence], listener, model=self.path))
        finished.result(timeout=60)
