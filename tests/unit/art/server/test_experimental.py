import os

import pytest

from fakes.art_clients import ArtClient

ART = ArtClient()
TO_BUCKET = {"model": ART.model(), "s3_bucket": "mine", "prefix": "runs", "verbose": False, "delete": True}


@pytest.fixture
def aws(tmp_path, monkeypatch):
    """A command `aws` that writes down its arguments."""
    told = tmp_path / "told"
    program = tmp_path / "bin" / "aws"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {told}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return told


async def test_a_model_is_copied_to_the_bucket_and_back(client, models, aws):
    """The folder to the address that ART's server uses, or the other way round."""
    here = models.output_dir / "demo/models/agent-001"
    there = "s3://mine/runs/demo/models/agent-001"
    assert (await client.post("/_experimental_push_to_s3", json=TO_BUCKET)).status_code == 409
    answer = await client.post("/_experimental_pull_from_s3", json=TO_BUCKET)
    assert (answer.status_code, answer.json()) == (200, None)
    flags = ["--delete", "--only-show-errors"]
    assert aws.read_text().split() == ["s3", "sync", there, str(here), *flags]
    assert (await client.post("/_experimental_push_to_s3", json=TO_BUCKET)).status_code == 200
    assert aws.read_text().split() == ["s3", "sync", str(here), there, *flags]


async def test_other_buckets_are_refused_before_anything_is_copied(client, models, aws):
    """The command has the server's credentials, which may open every bucket of its owner."""
    answer = await client.post("/_experimental_pull_from_s3", json={**TO_BUCKET, "s3_bucket": "theirs"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (403, "s3_bucket")
    assert not aws.exists()
    assert not (models.output_dir / "demo").exists()


async def test_without_the_command_it_says_what_to_install(client, monkeypatch, tmp_path):
    """501: this server cannot, another one could."""
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = await client.post("/_experimental_pull_from_s3", json=TO_BUCKET)
    assert (answer.status_code, "AWS CLI" in answer.json()["detail"]) == (501, True)


@pytest.mark.parametrize(("path", "status"), [("deploy", 400), ("fork_checkpoint", 404)])
async def test_what_no_server_here_does_is_refused_with_the_way_around(client, path, status):
    """The checkpoint's folder is what the client needs in both cases."""
    answer = await client.post(f"/_experimental_{path}", json={"model": ART.model()})
    assert (answer.status_code, "checkpoint" in answer.json()["detail"]) == (status, True)
