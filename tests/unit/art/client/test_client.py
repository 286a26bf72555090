"""ArtClient's calls against a server on a real socket."""

import httpx
import pytest

from fakes.art_server import GRADIENT_STEP, FakeArtServer
from nat.art.client.client import ArtClient, Inference
from nat.errors import BackendError, BackendUnreachable, TrainingFailed

MODEL = {"name": "my_run", "project": "p", "base_model": "tiny"}
BODY = b'{"model":{}}'
FAILURE = {"message": "out of memory", "hint": "lower max_seq_length"}


def client(server: FakeArtServer) -> ArtClient:
    return ArtClient(server.base_url, "sk-1")


async def trained(server: FakeArtServer) -> list[dict]:
    """The lines of one training call on a registered model."""
    async with client(server) as art:
        await art.register(MODEL)
        return [line async for line in art.train(BODY)]


async def test_an_inference_server_never_gets_the_key_of_the_control_routes():
    """It may be another host, also where it needs no key."""
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers.get("authorization"))
        return httpx.Response(200, json={"data": []})

    async with ArtClient("http://control", "control-key", transport=httpx.MockTransport(answer)) as art:
        assert await art.served_names(Inference("http://elsewhere/v1", "")) == []
        assert await art.served_names(Inference("http://elsewhere/v1", "its-own")) == []
        await art.check_health()
    assert asked == [None, "Bearer its-own", "Bearer control-key"]


async def test_the_calls_are_arts():
    """Each route is called with ART's method, path and body, and with the key."""
    async with FakeArtServer() as server, client(server) as art:
        await art.check_health()
        await art.register(MODEL)
        inference = await art.prepare({"model": MODEL})
        assert inference == Inference(server.inference.base_url, "default")
        assert await art.served_names(inference) == ["tiny", "my_run"]
        assert await art.step(MODEL) == 0
        assert [line async for line in art.train(BODY)] == [GRADIENT_STEP]
        assert await art.step(MODEL) == 1
        await art.delete_checkpoints(MODEL, keep=[1])
    assert [(r.method, r.path) for r in server.requests] == [
        ("GET", "/healthcheck"),
        ("POST", "/register"),
        ("POST", "/_prepare_backend_for_training"),
        ("POST", "/_get_step"),
        ("POST", "/_train_model"),
        ("POST", "/_get_step"),
        ("POST", "/_delete_checkpoint_files"),
    ]
    assert server.bodies("/_delete_checkpoint_files") == [{"model": MODEL, "steps_to_keep": [1]}]
    assert {r.headers["authorization"] for r in server.requests} == {"Bearer sk-1"}


async def test_the_configured_host_replaces_a_listening_address():
    """ART's servers may report the address on which they listen, to which no client can connect."""
    async with FakeArtServer(listens_everywhere=True) as server, client(server) as art:
        await art.register(MODEL)
        assert (await art.prepare({"model": MODEL})).base_url == server.inference.base_url


async def test_older_servers_delete_in_their_own_way():
    """A missing route is no error if the server has the older one."""
    async with FakeArtServer(old_delete=True) as server, client(server) as art:
        await art.delete_checkpoints(MODEL, keep=[1])
    assert server.bodies("/_delete_checkpoints") == [MODEL]


@pytest.mark.parametrize("status", [401, 404, 500])
async def test_health_is_a_good_status_only(status):
    """An error status is not healthy, and the message has the guide's words."""
    async with FakeArtServer(refusals={"/healthcheck": (status, {"detail": "no"})}) as server, client(server) as art:
        with pytest.raises(BackendUnreachable, match=rf"Failed to connect to ART backend\. .* with {status}: no"):
            await art.check_health()


async def test_each_gradient_step_is_reported_at_once():
    """The metrics arrive line by line; a NaN is read, and a stream without a line is a good one."""
    steps = [{"loss": 0.5, "num_gradient_steps": 2}, {"loss": 0.25, "num_gradient_steps": 2}]
    async with FakeArtServer(lines=steps) as server:
        assert await trained(server) == steps
    async with FakeArtServer(lines=[]) as server:
        assert await trained(server) == []
    async with FakeArtServer(lines=[{"loss": float("nan")}]) as server:
        [line] = await trained(server)
        assert line["loss"] != line["loss"]


@pytest.mark.parametrize("after", [0, 1])
async def test_a_broken_stream_is_a_failure(after):
    """ART's servers report a failure only by breaking the stream off, so the error quotes the connection."""
    async with FakeArtServer(breaks_after=after) as server:
        with pytest.raises(TrainingFailed, match="broke the stream off: RemoteProtocolError: peer closed connection"):
            await trained(server)


async def test_the_reason_of_a_broken_stream_is_fetched():
    """A server that names its job, as ours does, reports the reason and the remedy."""
    async with FakeArtServer(breaks_after=1, failure=FAILURE) as server:
        with pytest.raises(TrainingFailed, match="out of memory\n  → lower max_seq_length"):
            await trained(server)
    assert server.paths[-1] == "/jobs/7"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"error": "CUDA out of memory"}', "CUDA out of memory"),
        ("[1]", "holds no metrics"),
        ("oops", "holds no metrics"),
    ],
)
async def test_a_line_that_is_no_metrics_is_a_failure(line, reason):
    """Some servers end a stream of status 200 with an error; reading it as metrics would complete the job."""
    async with FakeArtServer(in_band=line) as server:
        with pytest.raises(TrainingFailed, match=reason):
            await trained(server)


@pytest.mark.parametrize(
    ("status", "hint"),
    [(409, "another run trains this model"), (404, "lead to an ART server"), (401, "backend.api_key")],
)
async def test_a_refused_batch_has_the_servers_answer(status, hint):
    """The status before the first line is the server's answer to the request as a whole."""
    async with FakeArtServer(refusals={"/_train_model": (status, {"detail": "no"})}) as server:
        with pytest.raises(BackendError, match=hint):
            await trained(server)


async def test_a_server_that_cannot_train_is_reported_at_once():
    """ART 0.5.18 lacks the training route; the error comes before an epoch of rollouts is wasted."""
    async with FakeArtServer(trains=False) as server, client(server) as art:
        with pytest.raises(BackendError, match=r"no route /_train_model\n.*0\.5\.18"):
            await art.check_trains()
    async with FakeArtServer() as server, client(server) as art:
        await art.check_trains()


@pytest.mark.parametrize("said", ["three", None, [1]])
async def test_a_step_is_a_number(said):
    """A step that is no number comes from another kind of server and is an error."""
    async with FakeArtServer(refusals={"/_get_step": (200, said)}) as server, client(server) as art:
        with pytest.raises(BackendError, match="is not a step"):
            await art.step(MODEL)
