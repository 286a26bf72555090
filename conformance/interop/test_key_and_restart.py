"""A real client trains on a server with a chosen key, and continues after a restart of the server."""

from pathlib import Path

import pytest
from conformance.interop import scripts
from conformance.interop.serving import serving

ENVIRONMENT, KEY = "art-0.5.0", "sk-chosen"


def test_a_key_in_the_url_opens_the_server_and_a_restart_loses_nothing(tiny_model: Path, tmp_path: Path) -> None:
    """An unmodified client with the key in its URL trains; after a restart, the step and the weights are the same."""
    chosen = {"name": "agent"}
    with serving(tiny_model, tmp_path, api_key=KEY) as server:
        trained = scripts.run("art_backend", ENVIRONMENT, {**server.settings, **chosen}, tmp_path)
        refused = server.settings | {"control_url": f"http://{server.settings['host']}:{server.port}"}
        with pytest.raises(scripts.ScriptFailed, match="401 Unauthorized"):
            scripts.run("art_again", ENVIRONMENT, {**refused, **chosen}, tmp_path)
    with serving(tiny_model, tmp_path, api_key=KEY) as server:
        again = scripts.run("art_again", ENVIRONMENT, {**server.settings, **chosen}, tmp_path)
    assert again["step"] == trained["steps"][-1] == 4
    assert again["probability"] == pytest.approx(trained["probabilities"][-1], rel=1e-3)
