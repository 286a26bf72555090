"""ART 0.5.23's `TinkerNativeBackend` trains on our server, unmodified, and goes on from its own checkpoints."""

import json
from pathlib import Path

from conformance.environments import HOME, pip, python_of
from conformance.tinker.test_tinker_server import said, serving, tiny_model

__all__ = ["tiny_model"]

CLIENT = Path(__file__).with_name("art_client.py")
STEPS = 8


def test_art_trains_through_its_own_backend(tiny_model: Path, tmp_path: Path) -> None:
    """Short answers become likely; a second process finds the checkpoints on the server, and takes the next step."""
    python, cookbook = python_of("art-native-0.5.23"), HOME / "tinker_cookbook-0.6.1-py3.12"
    if not (cookbook / "tinker_cookbook").is_dir():
        pip(python, "install", "-qq", "--no-deps", "--target", str(cookbook), "tinker-cookbook==0.6.1")
    with serving(tiny_model, tmp_path) as (env, _):
        found = []
        for steps in (STEPS, 1):
            command = [python, CLIENT, str(tiny_model), str(tmp_path / "art"), str(steps)]
            found.append(json.loads(said(command, env | {"PYTHONPATH": str(cookbook)}).splitlines()[-1]))
    rewards = found[0]["rewards"]
    assert max(rewards[-3:]) > rewards[0] + 0.2
    assert [each["step"] for each in found] == [STEPS, STEPS + 1]
    assert found[0]["metrics"]["loss/grad_norm"] > 0
    print(f"\nTinkerNativeBackend: reward {rewards[0]:.2f} → {rewards[-1]:.2f} in {STEPS} steps")
