"""Every HTTP client of the package keeps the rules of `nat.http.client`: no other module makes one."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "nat"
MAKERS = {"http/client.py", "capture/sdk.py", "capture/library.py"}
"""The modules whose classes derive from a library's client, and that which finds the SDK's library."""
LIBRARIES = {"httpx", "httpx2"}
CLIENTS = {"Client", "AsyncClient", "get", "post", "put", "patch", "delete", "head", "request", "stream"}
OTHERS = {"requests", "aiohttp", "urllib3", "urllib.request", "http.client"}
SDKS_OWN = {"DefaultAsyncHttpxClient", "DefaultHttpxClient", "DefaultAioHttpClient"}
SDK = {"OpenAI", "AsyncOpenAI", "OpenAIClient", "SyncOpenAIClient"}


def clients_in(tree: ast.Module) -> Iterator[str]:
    """What the module uses to send requests, without these rules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in LIBRARIES and node.attr in CLIENTS:
            yield f"{ast.unparse(node)}, line {node.lineno}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in SDK:
            if not any(keyword.arg == "http_client" for keyword in node.keywords):
                yield f"{ast.unparse(node.func)} without http_client, line {node.lineno}"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            yield from (f"{name}, line {node.lineno}" for name in {*names} & SDKS_OWN)
            module = getattr(node, "module", None)
            found = {*names, module} & OTHERS if module != "urllib.request" else {*names} & {"urlopen", "Request"}
            yield from (f"{name}, line {node.lineno}" for name in found)


def typed(tree: ast.Module) -> ast.Module:
    """The module without its annotations, which may name a library's class."""
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            if getattr(node, field, None) is not None:
                setattr(node, field, ast.Constant(None))
    return tree


def test_no_other_module_makes_a_client():
    """A client made elsewhere would use the environment's proxies, and read an answer of any size."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        inside = str(path.relative_to(SOURCE))
        if inside not in MAKERS and not inside.startswith("project/templates/"):  # a template is a user's program
            found[inside] = list(clients_in(typed(ast.parse(path.read_text("utf-8")))))
    assert {inside: clients for inside, clients in found.items() if clients} == {}


@pytest.mark.parametrize(
    "source",
    [
        "httpx.AsyncClient()",
        "httpx.get(url)",
        "AsyncOpenAI(base_url=url)",
        "from openai import DefaultHttpxClient",
        "import requests",
        "from urllib.request import urlopen",
        "import http.client",
    ],
)
def test_a_client_is_recognised(source):
    """Clients of httpx, the SDK's without ours, and other libraries are found."""
    assert len(list(clients_in(ast.parse(source)))) == 1
