"""Check the files for service managers in the documentation, which systemd, SLURM and Kubernetes read.

Each must parse, and the `nat` command in it must exist with these options.
"""

import subprocess
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import yaml

from e2e.doc_commands import check_command, command_lines
from e2e.doc_pages import Block


def check_service(block: Block, folder: Path) -> bool:
    """Check a block that is a file for a service manager; False for any other."""
    match block.language:
        case "ini":
            _check_unit(block, folder)
        case "yaml" if "apiVersion:" in block.text:
            _check_manifest(block, folder)
        case "bash" if block.text.startswith("#!"):
            _check_script(block, folder)
        case _:
            return False
    return True


def _check_unit(block: Block, folder: Path) -> None:
    """Check a unit of systemd."""
    unit = ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str
    unit.read_string(block.text)
    assert {"Unit", "Service", "Install"} == set(unit.sections())
    check_command(unit["Service"]["ExecStart"], folder)


def _check_script(block: Block, folder: Path) -> None:
    """Check a script: its syntax by the shell, and the command that `srun` starts."""
    subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)  # noqa: S607 - the reader's shell
    lines = command_lines(block)
    [started] = [line.removeprefix("srun ") for line in lines if line.startswith("srun ")]
    check_command(started, folder)


def _check_manifest(block: Block, folder: Path) -> None:
    """Check the objects of a manifest: each is named, and refers to volumes and containers that there are."""
    objects = list(yaml.safe_load_all(block.text))
    names = {(each["kind"], each["metadata"]["name"]) for each in objects}
    assert len(names) == len(objects)
    for job in objects:
        if job["kind"] == "RayJob":
            check_command(job["spec"]["entrypoint"], folder)
        for container in job["spec"]["template"]["spec"]["containers"] if job["kind"] == "Deployment" else ():
            check_command(" ".join([*container["command"], *container["args"]]), folder)
        if job["kind"] != "Job":
            continue
        pod = job["spec"]["template"]["spec"]
        containers, volumes = _by_name(pod["containers"]), _by_name(pod["volumes"])
        for volume in volumes.values():
            assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in names
        for container in containers.values():
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes.keys()
            check_command(" ".join([*container["command"], *container["args"]]), folder)
        assert set(_named_by_rules(job)) <= containers.keys()


def _by_name(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in objects}


def _named_by_rules(job: dict[str, Any]) -> Iterator[str]:
    """The containers that rules about failures name."""
    for rule in job["spec"]["podFailurePolicy"]["rules"]:
        if "onExitCodes" in rule:
            yield rule["onExitCodes"]["containerName"]
