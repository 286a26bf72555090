"""Both wires carry the same batches, within limits."""

import struct

import pytest

from fakes.tinker_client import RL, TOKENS, datum, protobuf
from nat.tinker.server import routes
from nat.tinker.server.wire import MESSAGES, PROTOBUF


async def test_both_wires_give_the_same(client):
    """A protobuf request is the JSON one, and its answer has the same numbers."""
    model = await client.model()
    by_json = await client.train(model, [datum(TOKENS, **RL), datum(TOKENS[:4], **_cut(RL))], "ppo", forward=True)
    body = protobuf(model, [datum(TOKENS, **RL), datum(TOKENS[:4], **_cut(RL))], "ppo", seq=1)
    sent = await client.post("/forward_backward", content=body, headers={"content-type": PROTOBUF})
    assert sent.status_code == 200, sent.text
    await client.result(sent.json()["request_id"])
    asked = {"request_id": sent.json()["request_id"]}
    answer = await client.post("/retrieve_future", asked, headers={"accept": PROTOBUF})
    assert answer.headers["content-type"] == PROTOBUF
    found = MESSAGES["ForwardBackwardOutput"].FromString(answer.content)
    assert {each.key: each.value for each in found.metrics} == pytest.approx(by_json["metrics"])
    [field] = found.loss_fn_outputs[0].fields
    offsets = struct.unpack("<3q", field.value.offsets)
    assert offsets == (0, 20, 32)
    values = struct.unpack("<8f", field.value.data)
    outputs = [value for each in by_json["loss_fn_outputs"] for value in each["logprobs"]["data"]]
    assert list(values) == pytest.approx(outputs)


def _cut(inputs):
    return {name: values[:3] for name, values in inputs.items()}


async def test_bodies_are_bounded_and_their_shapes_checked(client):
    """What is no batch, sparse, of two dimensions, or has an unknown field or encoding is refused."""
    model = await client.model()
    headers = {"content-type": PROTOBUF}
    request = MESSAGES["ForwardBackwardRequest"].FromString(protobuf(model, [datum(TOKENS)], "cross_entropy"))
    request.data[0].loss_fn_inputs[0].value.shape.append(1)
    two = request.SerializeToString()
    image = protobuf(model, [], "ppo") + b"\x1a\x04\x0a\x02\x12\x00"
    for content, more, finding in (
        (b"\xff\xff", headers, "no batch of Tinker's protobuf"),
        (two, headers, "the shape [5, 1]"),
        (image, headers, "no text"),
        (protobuf(model, [], "ppo") + b"\xa0\x06\x01", headers, "fields that this server does not know"),
        (b"{}", {}, "forward_backward_input"),
        (b"{}", {"content-encoding": "br"}, "content-encoding 'br'"),
    ):
        answer = await client.post("/forward_backward", content=content, headers=more)
        assert answer.status_code in {400, 415, 422}, answer.text
        assert finding in answer.text, answer.text


async def test_a_compressed_body_is_bounded_after_its_decompression(client, monkeypatch):
    """Zstd is taken; what it hides may not be larger than any other body."""
    zstandard = pytest.importorskip("zstandard")
    model = await client.model()
    headers = {"content-type": PROTOBUF, "content-encoding": "zstd"}
    body = zstandard.ZstdCompressor().compress(protobuf(model, [datum(TOKENS)], "cross_entropy"))
    sent = await client.post("/forward_backward", content=body, headers=headers)
    assert "metrics" in await client.result(sent.json()["request_id"])
    monkeypatch.setattr(routes, "MAX_BODY_BYTES", 2**20)
    small = zstandard.ZstdCompressionParameters.from_level(3, window_log=17)
    bomb = zstandard.ZstdCompressor(compression_params=small).compress(b"\0" * 2**22)
    assert len(bomb) < 2**12
    assert (await client.post("/forward_backward", content=bomb, headers=headers)).status_code == 413
    assert (await client.post("/forward_backward", content=b"{}", headers=headers)).status_code == 400


LONG = "x" * 100_000


@pytest.mark.parametrize(
    ("place", "value", "finding"),
    [
        (("model_id",), ["a"], "model_id"),
        (("model_id",), LONG, "model_id"),
        (("seq_id",), 10**400, "seq_id"),
        (("extra",), 1, "extra"),
        ((0, "loss_fn"), ["ppo"], "loss_fn"),
        ((0, "loss_fn"), LONG, "loss_fn"),
        ((0, "extra"), 1, "extra"),
        ((0, "loss_fn_config"), {"clip": [1]}, "loss_fn_config"),
        ((0, "data", 0, "extra"), 1, "extra"),
        ((0, "data", 0, "model_input", "chunks", 0, "tokens"), [5, 1.7, 6, 7, 8], "tokens.1"),
        ((0, "data", 0, "model_input", "chunks", 0, "tokens"), [5, 2**64, 6, 7, 8], "token id of more than 64 bits"),
        ((0, "data", 0, "loss_fn_inputs", "target_tokens", "extra"), 1, "extra"),
        ((0, "data", 0, "loss_fn_inputs", "target_tokens", "data"), "12345", "target_tokens.data"),
        ((0, "data", 0, "loss_fn_inputs", LONG), {"data": [1]}, "loss_fn_inputs"),
    ],
)
@pytest.mark.parametrize("kind", ["forward", "forward_backward"])
async def test_a_json_batch_has_exactly_its_fields(client, kind, place, value, finding):
    """Another type, a field of no effect, or a name that answers would repeat at length is refused by its place."""
    given = {"data": [datum(TOKENS)], "loss_fn": "cross_entropy", "loss_fn_config": None}
    body = {"model_id": await client.model(), "seq_id": 1, f"{kind}_input": given}
    at = given if place[0] == 0 else body
    *way, last = place[1:] if place[0] == 0 else place
    for part in way:
        at = at[part]
    at[last] = value
    answer = await client.post(f"/{kind}", body)
    assert answer.status_code == 422, answer.text
    assert finding in answer.text
    assert len(answer.text) < 2000


async def test_where_tokens_came_from_changes_nothing(client):
    """Clients from 0.38 name the answers that a datum's tokens are from."""
    model = await client.model()
    request = MESSAGES["ForwardBackwardRequest"].FromString(protobuf(model, [datum(TOKENS)], "cross_entropy", seq=1))
    span = b"\x12\x07\x0a\x03s:0\x18\x02"
    request.data[0].MergeFromString(b"".join(bytes([tag, len(span)]) + span for tag in (0x1A, 0x22)))
    headers = {"content-type": PROTOBUF}
    sent = await client.post("/forward_backward", content=request.SerializeToString(), headers=headers)
    assert sent.status_code == 200, sent.text
    assert "metrics" in await client.result(sent.json()["request_id"])


@pytest.mark.parametrize(
    "part",
    [
        lambda request: request.loss_fn_config[0],
        lambda request: request.loss_fn_config_v2[0].value,
        lambda request: request.data[0],
        lambda request: request.data[0].model_input[0].encoded_text,
        lambda request: request.data[0].loss_fn_inputs[0].value,
    ],
)
async def test_a_protobuf_batch_has_exactly_its_fields(client, part):
    """Unknown fields are refused at every depth."""
    body = protobuf(await client.model(), [datum(TOKENS)], "cross_entropy", clip_low=0.5)
    request = MESSAGES["ForwardBackwardRequest"].FromString(body)
    request.loss_fn_config_v2.add(key="b").value.number = 1.0
    part(request).MergeFromString(b"\xa0\x06\x01")
    headers = {"content-type": PROTOBUF}
    answer = await client.post("/forward_backward", content=request.SerializeToString(), headers=headers)
    assert answer.status_code == 422, answer.text
    assert "does not know" in answer.text


@pytest.mark.parametrize("body", [b"\xff" * 999, b"\x1a", b"\x1a\xff\xff\xff\x7f", b"\x0b" * 9, b"\x1a" * 9, b"\x09"])
async def test_a_protobuf_body_is_a_batch(client, body):
    """What is cut short, or no message, is the client's mistake."""
    answer = await client.post("/forward_backward", content=body, headers={"content-type": PROTOBUF})
    assert answer.status_code == 422, answer.text
    assert "is no batch of Tinker's protobuf" in answer.text
