"""Tinker's two wires: JSON records, and protobuf messages that are built at import from a table of their fields.

Unknown fields are errors, because a setting without effect would falsify an experiment. Field numbers are those of
`tinker_public.proto` in the official client; a map is a repeated pair of key and value, as protobuf encodes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from nat.http.errors import ApiError, from_validation
from nat.wire.json import Several
from nat.wire.numbers import Amount, PositiveAmount
from nat.wire.openai_api import LONGEST_STOP
from nat.wire.sampling import MAX_TEMPERATURE
from nat.wire.training import FILE_NAME

PROTOBUF = "application/x-protobuf"
Session = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
Name = Annotated[str, Field(max_length=1000)]
"""Of a model, weights, a loss or a request, which answers repeat."""
Number = Annotated[int, Field(ge=0, lt=2**53)]
"""Of a request, which its key repeats."""
Stop = Annotated[str, Field(max_length=LONGEST_STOP)]
AdamW = dict[Literal["type"], Literal["adamw"]]
"""The only optimizer."""
_PACKAGE = "nat_tinker"
_FIELDS = {
    "SampledSequence": "stop_reason:1:int32 tokens:2:bytes logprobs:3:bytes",
    "SampleResponse": "sequences:1:[SampledSequence] prompt_logprobs:2:bytes",
    "Tensor": "dense:1:bytes dtype:3:int32 shape:4:[int64]",
    "BatchedTensor": "data:1:bytes offsets:2:bytes dtype:3:int32",
    "OutputField": "key:1:string value:2:BatchedTensor",
    "ArrayRecord": "fields:2:[OutputField] num_datums:3:int64",
    "Number": "key:1:string value:2:double",
    "ForwardBackwardOutput": "loss_fn_output_type:1:string loss_fn_outputs:2:[ArrayRecord] metrics:3:[Number]",
    "ConfigValue": "number:1:double text:2:string",
    "Config": "key:1:string value:2:ConfigValue",
    "EncodedText": "tokens:1:bytes",
    "Chunk": "encoded_text:1:EncodedText",
    "Input": "key:1:string value:2:Tensor",
    # The spans say which answers tokens came from; they change nothing that is computed.
    "Datum": "model_input:1:[Chunk] loss_fn_inputs:2:[Input] model_input_spans:3:[bytes] loss_fn_input_spans:4:[bytes]",
    "ForwardBackwardRequest": "model_id:1:string seq_id:2:int32 data:3:[Datum] loss_fn:4:string "
    "loss_fn_config:5:[Number] forward_only:6:bool loss_fn_config_v2:7:[Config]",
}
_DTYPES = {1: "<f4", 2: "<i8", 3: "<i4"}


def _messages() -> Mapping[str, Any]:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for key, number, kind in (field.split(":") for field in fields.split()):
            one = kind.strip("[]")
            label = kinds.LABEL_OPTIONAL if one == kind else kinds.LABEL_REPEATED
            named = {"type_name": f".{_PACKAGE}.{one}"} if one in _FIELDS else {}
            type_ = kinds.TYPE_MESSAGE if named else getattr(kinds, f"TYPE_{one.upper()}")
            message.field.add(name=key, number=int(number), label=label, type=type_, **named)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{n}")) for n in _FIELDS}


MESSAGES = _messages()


class Body(BaseModel):
    """The body of a request; clients of one owner say nothing with `type` and `user_metadata`."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    type: str | None = None
    user_metadata: dict[str, Any] | None = None


class NewSession(Body):
    """POST /create_session; nothing is kept of what clients tell of themselves."""

    tags: list[str] = []
    sdk_version: str = ""
    project_id: str | None = None
    display_name: str | None = None


class OfSession(Body):
    """POST /session_heartbeat."""

    session_id: Session


class Lora(Body):
    """An adapter on all linear layers of the decoder; the unembedding has none, which `create_session` tells.

    With rank 0 all weights are trained.
    """

    rank: int = Field(ge=0, le=2**16)
    seed: int | None = None
    train_unembed: bool = True
    train_mlp: Literal[True] = True
    train_attn: Literal[True] = True


class NewModel(OfSession):
    """POST /create_model."""

    model_seq_id: int = Field(ge=0, lt=10**9)
    base_model: Name
    lora_config: Lora | None = None
    optimizer_config: AdamW = {"type": "adamw"}


class OfModel(Body):
    """POST /get_info; `seq_id` numbers the requests of a model."""

    model_id: Name
    seq_id: Number | None = None


class AdamParams(Body):
    """AdamW's settings of one step; a norm of 0 does not clip."""

    learning_rate: Amount = 1e-4
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    eps: PositiveAmount = 1e-12
    weight_decay: Amount = 0.0
    grad_clip_norm: Amount = 0.0


class Step(OfModel):
    """POST /optim_step."""

    adam_params: AdamParams


class Save(OfModel):
    """POST /save_weights and /save_weights_for_sampler; nothing expires by itself, whatever `ttl_seconds`."""

    path: Annotated[str, Field(pattern=f"^{FILE_NAME}$")] | None = None
    ttl_seconds: int | None = None
    overwrite: bool = False
    sampling_session_seq_id: Number | None = None
    kind: Literal["snapshot"] = "snapshot"


class Load(Body):
    """POST /load_weights: into a model, or as a new one of a session."""

    path: Name
    optimizer: bool
    model_id: Name | None = None
    seq_id: Number | None = None
    session_id: Session | None = None
    model_seq_id: int = Field(default=0, ge=0, lt=10**9)
    base_model: Name | None = None
    optimizer_config: AdamW | None = None
    weights_access_token: None = None


class OfPath(Body):
    """POST /weights_info."""

    tinker_path: Name


class NewSampler(OfSession):
    """POST /create_sampling_session."""

    sampling_session_seq_id: Number
    base_model: Name | None = None
    model_path: Name | None = None


class OfRequest(Body):
    """POST /retrieve_future."""

    request_id: Name
    allow_metadata_only: bool = False


class Chunk(Body):
    """Token ids; images and sounds are refused."""

    tokens: Several[int]


class Chunks(Body):
    """The tokens of a sequence."""

    chunks: Several[Chunk]


class Settings(Body):
    """How to sample; an empty `stop` also ignores the model's own end."""

    max_tokens: int | None = Field(default=None, ge=1)
    seed: int | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | Annotated[list[int], Field(max_length=1000)] | None = (
        None
    )
    temperature: float = Field(default=1.0, ge=0, le=MAX_TEMPERATURE)
    top_k: Literal[-1, 0] = -1
    top_p: float = Field(default=1.0, gt=0, le=1)


class Sample(Body):
    """POST /asample."""

    prompt: Chunks
    sampling_params: Settings = Settings()
    num_samples: int = Field(default=1, ge=1, le=256)
    base_model: Name | None = None
    model_path: Name | None = None
    sampling_session_id: Name | None = None
    seq_id: Number | None = None
    prompt_logprobs: bool | None = None
    prompt_logprobs_last_n: Annotated[int, Field(ge=1)] | None = None
    topk_prompt_logprobs: Literal[0] = 0
    topk_sample_logprobs: Literal[0] = 0
    prompt_alt_tokens_k: Literal[0] = 0
    target_prompt_logprobs: None = None
    record_stability_info: Literal[False] | None = None


class Tensor(Body):
    """One value for each token; the type follows from the tensor's name."""

    data: Several[float]
    dtype: Literal["float32", "int64"] | None = None
    shape: list[int] | None = None
    sparse_crow_indices: None = None
    sparse_col_indices: None = None


class SentDatum(Body):
    """A sequence, in JSON."""

    model_input: Chunks
    loss_fn_inputs: dict[Name, Tensor]


class SentPass(Body):
    """A batch, in JSON."""

    data: Several[SentDatum]
    loss_fn: Name
    loss_fn_config: dict[Name, float | Name] | None = None


class Forward(OfModel):
    """POST /forward, of clients up to 0.20."""

    forward_input: SentPass


class ForwardBackward(OfModel):
    """POST /forward_backward of these clients."""

    forward_backward_input: SentPass


@dataclass(frozen=True)
class Datum:
    """A sequence to train on: T tokens, and T values for each name."""

    token_ids: NDArray[np.int64]
    inputs: Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Batch:
    """A request for a gradient, or for a forward pass only."""

    model_id: str
    seq_id: int
    data: Sequence[Datum]
    loss: str
    config: Mapping[str, float | str]
    forward_only: bool


def batch_of_json(body: bytes, *, forward_only: bool) -> Batch:
    """Read a batch as clients up to 0.20 send it; ApiError if it is none."""
    kind: type[Forward | ForwardBackward] = Forward if forward_only else ForwardBackward
    try:
        found = TypeAdapter(kind).validate_json(body)
    except ValidationError as error:
        raise from_validation(error, status=422) from error
    sent = found.forward_input if isinstance(found, Forward) else found.forward_backward_input
    data = []
    for datum in sent.data:
        ids = [token for chunk in datum.model_input.chunks for token in chunk.tokens]
        inputs = {
            name: _vector(np.array(own.data, "<f8"), own.shape, name) for name, own in datum.loss_fn_inputs.items()
        }
        try:
            data.append(Datum(np.array(ids, "<i8"), inputs))
        except OverflowError as error:
            raise ApiError(f"model_input has a token id of more than 64 bits: {error}", status=422) from error
    return Batch(found.model_id, found.seq_id or 0, data, sent.loss_fn, sent.loss_fn_config or {}, forward_only)


def batch_of_protobuf(body: bytes) -> Batch:
    """Read a batch as clients from 0.25 send it; ApiError if it is none."""
    found = MESSAGES["ForwardBackwardRequest"]()
    try:
        found.ParseFromString(body)
        data = []
        for datum in found.data:
            if not all(chunk.HasField("encoded_text") for chunk in datum.model_input):
                raise ApiError("model_input has a chunk that is no text", status=422)
            ids = np.concatenate([np.frombuffer(chunk.encoded_text.tokens, "<i4") for chunk in datum.model_input])
            pairs = ((each.key, each.value) for each in datum.loss_fn_inputs)
            inputs = {k: _vector(np.frombuffer(t.dense, _DTYPES[t.dtype]), list(t.shape), k) for k, t in pairs}
            data.append(Datum(ids.astype("<i8"), inputs))
    except ApiError:
        raise
    except Exception as error:  # protobuf has another class of errors for each of its implementations
        raise ApiError(f"the body is no batch of Tinker's protobuf: {error!r}", status=422) from error
    size = found.ByteSize()
    found.DiscardUnknownFields()
    if found.ByteSize() != size:
        raise ApiError("the request has fields that this server does not know; use a client up to 0.38", status=422)
    config: dict[str, float | str] = {each.key: each.value for each in found.loss_fn_config}
    config |= {each.key: each.value.text or each.value.number for each in found.loss_fn_config_v2}
    return Batch(found.model_id, found.seq_id, data, found.loss_fn, config, found.forward_only)


def _vector(values: NDArray[Any], shape: Sequence[int] | None, name: str) -> NDArray[Any]:
    """One value for each token; ApiError for a sparse tensor, or one of two dimensions."""
    if shape and list(shape) != [len(values)]:
        raise ApiError(f"{name} has {len(values)} values and the shape {list(shape)}; one is wanted for each token")
    return values
