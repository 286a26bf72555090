"""Chat types to text and back: a workflow of one kind can be called with the other."""

from nat.data_models.api_server import ChatRequest, ChatRequestOrMessage, ChatResponse, ChatResponseChunk


def _request_to_text(request: ChatRequest) -> str:
    return request.last_user_text


def _text_to_request(text: str) -> ChatRequest:
    return ChatRequest.from_string(text)


def _either_to_text(either: ChatRequestOrMessage) -> str:
    return either.request.last_user_text


def _text_to_either(text: str) -> ChatRequestOrMessage:
    return ChatRequestOrMessage(input_message=text)


def _either_to_request(either: ChatRequestOrMessage) -> ChatRequest:
    return either.request


def _response_to_text(response: ChatResponse) -> str:
    return response.text


def _text_to_response(text: str) -> ChatResponse:
    return ChatResponse.from_string(text)


def _chunk_to_text(chunk: ChatResponseChunk) -> str:
    return chunk.text


def _text_to_chunk(text: str) -> ChatResponseChunk:
    return ChatResponseChunk.from_string(text)


CHAT_CONVERTERS = (
    _request_to_text,
    _text_to_request,
    _either_to_text,
    _text_to_either,
    _either_to_request,
    _response_to_text,
    _text_to_response,
    _chunk_to_text,
    _text_to_chunk,
)
