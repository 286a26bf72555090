"""Real clients, each in its own environment, train with our server; the rewarded answer becomes likelier."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conformance.interop import scripts
from conformance.interop.serving import Served
from conformance.interop.versions import Table

LEAST_GAIN = 0.3
"""The probability of the rewarded beginning rises by at least this much in four training calls."""
LEAST_GAIN_OF_TWO_EPOCHS = 0.1
LESSON = "registered, gathered rollouts, trained four times, logged, deleted old checkpoints, closed"


def _checkpoints(server: Served, name: str) -> list[str]:
    """The steps' checkpoints, without the link to the latest."""
    folders = (server.model_folder(name) / "checkpoints").iterdir()
    return sorted(folder.name for folder in folders if folder.name.isdigit())


def _expect_learning(result: dict[str, Any]) -> None:
    first, last = result["probabilities"][0], result["probabilities"][-1]
    assert last > first + LEAST_GAIN, f"the rewarded answer went from {first:.3f} to {last:.3f}"
    assert result["steps"] == [0, 1, 2, 3, 4], "each training call is one step"


@pytest.mark.parametrize(
    ("environment", "script"),
    [
        ("nat-1.9.0", "nat_remote_backend"),
        ("art-0.5.23", "art_serverless"),
    ],
)
def test_a_released_client_trains(environment: str, script: str, server: Served, table: Table, tmp_path: Path) -> None:
    """The rewarded answer becomes likelier, the step counts the calls, and `name@0` keeps its weights."""
    name = f"{script}-{environment}".replace(".", "-")
    with table.proof("openpipe-art", environment, f"client of our server ({script})", LESSON) as row:
        result = scripts.run(script, environment, {**server.settings, "name": name, "folder": str(tmp_path)}, tmp_path)
        row.versions, row.seen = result.pop("versions"), result
        _expect_learning(result)
        assert result["at_first"] == pytest.approx(result["probabilities"][0], rel=1e-4), "step 0 was frozen"
        assert _checkpoints(server, name) == ["0004"], "only the newest was kept"


def test_the_upstream_plug_in_trains(server: Served, table: Table, tmp_path: Path) -> None:
    """The upstream adapter completes each epoch, and the server uses the learning rate of its configuration.

    The call itself has a rate of 5e-05, which is too low for four steps.
    """
    environment, name = "nat-1.9.0", "adapter-nat-1-9-0"
    did = "its trainer adapter initialised, submitted four epochs and one with a minimal configuration; each completed"
    with table.proof("nvidia-nat-openpipe-art", environment, "client of our server (nat_adapter)", did) as row:
        result = scripts.run("nat_adapter", environment, {**server.settings, "name": name}, tmp_path)
        row.versions, row.seen = result.pop("versions"), result
        assert result["statuses"] == ["completed: Training completed successfully."] * 5
        _expect_learning(result)


def test_the_upstream_toolkit_finetunes_with_its_guides_configuration(
    server: Served, table: Table, tmp_path: Path
) -> None:
    """`nat finetune` of the upstream toolkit learns with the guide's configuration from a LangChain agent's calls."""
    did = "`nat finetune` with the guide's configuration and a LangChain agent, two epochs"
    with table.proof("nvidia-nat-openpipe-art", "nat-1.9.0", "client of our server (nat_finetune)", did) as row:
        result = scripts.run("nat_finetune", "nat-1.9.0", {**server.settings, "name": "upstream"}, tmp_path)
        row.versions, row.seen = result.pop("versions"), result
        before, after = result["probabilities"]
        assert after > before + LEAST_GAIN_OF_TWO_EPOCHS
        assert _checkpoints(server, "upstream") == ["0000", "0001", "0002"]


def test_concurrent_clients_train_their_own_models(server: Served, tmp_path: Path) -> None:
    """Two clients train at once, each with its own adapter, and both learn."""

    def play(name: str) -> dict[str, Any]:
        folder = tmp_path / name
        folder.mkdir()
        return scripts.run(
            "nat_remote_backend", "nat-1.9.0", {**server.settings, "name": name, "folder": str(folder)}, folder
        )

    with ThreadPoolExecutor() as pool:
        both = [pool.submit(play, name) for name in ("first-at-once", "second-at-once")]
    for future in both:
        result = future.result()
        _expect_learning(result)
        assert result["at_first"] == pytest.approx(result["probabilities"][0], rel=1e-4)
