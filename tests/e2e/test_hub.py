"""Models by name, through huggingface_hub and a server that speaks the Hub's API."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from fakes.hub_server import HubServer, Repository
from fakes.tiny_model import make_tiny_model

pytestmark = pytest.mark.slow

FIND = """
import json, sys
from nat.errors import ModelUnavailable
from nat.hub import local_model
for model, revision in json.loads(sys.argv[1]):
    try:
        found = local_model(model, revision)
        print(json.dumps([str(found.folder), found.revision]))
    except ModelUnavailable as error:
        print(json.dumps(error.in_line))
"""


@pytest.fixture
def repositories(tmp_path) -> dict[str, Repository]:
    folders = {name: tmp_path / "hub" / name for name in ("tiny", "gated", "bare")}
    make_tiny_model(folders["tiny"])
    (folders["tiny"] / "pytorch_model.bin").write_bytes(b"the same weights in another format")
    (folders["tiny"] / "vocabulary.model").write_bytes(b"of sentencepiece")
    (folders["tiny"] / "onnx").mkdir()
    (folders["tiny"] / "onnx" / "config.json").write_text("{}")
    folders["bare"].mkdir()
    (folders["bare"] / "weights.gguf").write_bytes(b"GGUF")
    return {
        "owner/tiny": Repository(folders["tiny"], branches=("main", "v2")),
        "owner/gated": Repository(folders["tiny"], error_code="GatedRepo"),
        "owner/bare": Repository(folders["bare"]),
    }


@pytest.fixture
def user(tmp_path) -> Path:
    """The folder of a user without a cache."""
    folder = tmp_path / "user"
    folder.mkdir()
    return folder


@pytest.fixture
async def hub(repositories) -> AsyncIterator[HubServer]:
    async with HubServer(repositories) as server:
        yield server


def names_in(folder: str) -> set[str]:
    return {path.name for path in Path(folder).iterdir()}


async def find(folder: Path, endpoint: str, *models: tuple[str, str | None], **environment: str) -> list:
    """Find models in a process whose cache is in the folder."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", FIND, json.dumps(models)),
        cwd=folder,
        env={**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(folder / "home"), **environment},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return [json.loads(line) for line in output.splitlines()]


async def test_a_name_is_downloaded_once_and_pinned(hub, user):
    """The commit of a branch is known; only files that a model needs come, once; offline, the cache suffices."""
    commit = hub.repositories["owner/tiny"].commit
    [first, second] = await find(user, hub.base_url, ("owner/tiny", None), ("owner/tiny", "v2"))
    assert first == second == [first[0], commit]
    files = names_in(first[0])
    assert files == set(hub.downloads)
    assert files >= {"config.json", "model.safetensors", "tokenizer.json", "vocabulary.model"}
    assert not files & {"pytorch_model.bin", "onnx"}
    assert len(hub.downloads) == len(files)
    offline = await find(user, hub.base_url, ("owner/tiny", commit), HF_HUB_OFFLINE="1")
    assert offline == [first]


async def test_a_model_is_judged_without_its_weights(hub, user):
    """`nat fits` downloads configuration, tokenizer and chat template alone, and the report has the commit."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from nat.cli.main import run_cli; run_cli()", "fits", "owner/tiny", "--json"),
        cwd=user,
        env={**os.environ, "HF_ENDPOINT": hub.base_url, "HF_HOME": str(user / "home")},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    found = json.loads(output)
    assert (process.returncode, found["problems"], found["family"], found["model"]) == (0, [], "qwen2", "owner/tiny")
    assert found["revision"] == hub.repositories["owner/tiny"].commit
    assert {"config.json", "tokenizer.json", "chat_template.jinja"} <= set(hub.downloads)
    assert "model.safetensors" not in hub.downloads


async def test_what_cannot_be_had_says_why_and_what_to_do(hub, user):
    """Names that are unknown, gated, without the revision, or no model of transformers; each with its remedy."""
    unknown, word, gated, revision, bare, folder = await find(
        user,
        hub.base_url,
        ("models/student", None),
        ("model", None),
        ("owner/gated", None),
        ("owner/tiny", "v3"),
        ("owner/bare", None),
        ("./models/../student/x", "v1"),
    )
    assert unknown.startswith(f"models/student is neither a folder here ({user}) nor a model that")
    assert "; check the name; for a private model, run `hf auth login`" in unknown
    assert "; if you mean a folder, correct its path" in word
    assert gated.startswith("owner/gated is gated: its owner has to grant you access; ask for it on")
    assert revision.startswith("owner/tiny has no revision 'v3'")
    assert bare.startswith("owner/bare is not a model of transformers (it has no config.json)")
    assert folder.startswith("./models/../student/x is a folder, which has no revision 'v1'")


async def test_a_token_is_sent(hub, user):
    """HF_TOKEN opens a gated model."""
    [found] = await find(user, hub.base_url, ("owner/gated", None), HF_TOKEN="hf_mine")
    assert found[1] == hub.repositories["owner/gated"].commit
    assert set(hub.tokens) == {"Bearer hf_mine"}


@pytest.mark.parametrize(
    ("environment", "reason"), [({}, "does not answer"), ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set")]
)
async def test_without_a_network_the_command_that_gets_it_is_named(user, environment, reason):
    """The error names the cache, the reason, and the command."""
    [error] = await find(user, "http://127.0.0.1:9", ("owner/tiny", "v2"), **environment)
    assert f"nor complete in the cache {user / 'home' / 'hub'}; " in error
    assert reason in error
    assert "`hf download owner/tiny --revision v2`" in error


async def test_a_run_records_the_commit(hub, tmp_path):
    """The plan of a run has the commit in its configuration, and the backend serves the model under its name."""
    config = Path(__file__).parents[2] / "examples" / "tic_tac_toe" / "configs" / "finetune.yml"
    named = ("-o", "llms.player.model", "owner/tiny", "-o", "finetuning.output_dir", str(tmp_path / "runs"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from nat.cli.main import run_cli; run_cli()"),
        *("finetune", "--config_file", str(config), *named, "--dry_run", "--json"),
        cwd=config.parents[3],
        env={
            **os.environ,
            "HF_ENDPOINT": hub.base_url,
            "HF_HOME": str(tmp_path / "home"),
            "XDG_CACHE_HOME": str(tmp_path),
        },
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    plan = json.loads(output)
    player = yaml.safe_load(plan["config_text"])["llms"]["player"]
    assert (player["model"], player["revision"]) == ("owner/tiny", hub.repositories["owner/tiny"].commit)
    assert plan["llms"]["player"] == "owner/tiny on the embedded backend"
