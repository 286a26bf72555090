"""Copies of a model's folder in S3, with a fake `aws` that records its arguments."""

import os

import pytest

from fakes.art_clients import ArtClient
from nat.art.server.experimental import run, s3_address, sync_command
from nat.art.wire import ArtBucketRequest, ArtModel
from nat.http.errors import ApiError
from nat.secrets import known_secrets

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
    """The folder is copied to the address that ART's server uses, and back."""
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
    """Other buckets are refused, because the command's credentials may open every bucket of the owner."""
    answer = await client.post("/_experimental_pull_from_s3", json={**TO_BUCKET, "s3_bucket": "theirs"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (403, "s3_bucket")
    assert not aws.exists()
    assert not (models.output_dir / "demo").exists()


async def test_a_missing_command_is_an_error_with_its_package(client, monkeypatch, tmp_path):
    """Without the command the status is 501, and the error says what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = await client.post("/_experimental_pull_from_s3", json=TO_BUCKET)
    assert (answer.status_code, "AWS CLI" in answer.json()["detail"]) == (501, True)


async def test_no_part_of_a_secret_stays_where_the_output_is_cut():
    """Half a secret is not recognised, so the output is redacted before its beginning is cut off."""
    known_secrets.remember(["hunter2-is-a-secret"])
    with pytest.raises(ApiError) as error:
        await run(["/bin/sh", "-c", f"printf 'hunter2-is-a-secret{'x' * 490}'; exit 1"])
    known_secrets.forget()
    assert "secret" not in error.value.message.partition("failed")[2]


@pytest.mark.parametrize(("path", "status"), [("deploy", 400), ("fork_checkpoint", 404)])
async def test_unsupported_operations_are_refused_with_a_workaround(client, path, status):
    """The error names the checkpoint's folder, which the client can use instead."""
    answer = await client.post(f"/_experimental_{path}", json={"model": ART.model()})
    assert (answer.status_code, "checkpoint" in answer.json()["detail"]) == (status, True)


MODEL = ArtModel(name="me", project="games")


def asked(**fields):
    return ArtBucketRequest(model=MODEL, **fields)


@pytest.mark.parametrize(
    ("fields", "address"),
    [
        ({"s3_bucket": "mine"}, "s3://mine/games/models/me"),
        ({"s3_bucket": "mine", "prefix": "/a/b.c/"}, "s3://mine/a/b.c/games/models/me"),
        ({}, "s3://first/games/models/me"),
    ],
)
def test_a_model_has_the_address_that_arts_own_server_gives_it(fields, address):
    """The address has the client's bucket, else the owner's first, and a prefix with or without slashes."""
    assert s3_address(asked(**fields), ["first", "mine"]) == address


@pytest.mark.parametrize("prefix", ["../x", "a//b", "a;b", "--delete"])
def test_prefixes_that_s3_does_not_have_are_refused(prefix):
    """Prefixes become arguments of a command, so only plain names are accepted."""
    with pytest.raises(ApiError) as error:
        s3_address(asked(prefix=prefix), ["mine"])
    assert (error.value.status, error.value.param) == (400, "prefix")


@pytest.mark.parametrize(("bucket", "buckets"), [("theirs", ["mine"]), (None, []), ("mine", [])])
def test_only_buckets_that_the_owner_named_are_used(bucket, buckets):
    """The server's credentials may open other buckets; clients cannot choose those."""
    with pytest.raises(ApiError) as error:
        s3_address(asked(s3_bucket=bucket), buckets)
    assert (error.value.status, error.value.param) == (403, "s3_bucket")


def test_each_option_of_the_client_becomes_a_flag():
    """Flags for deleting and for verbose output are passed only on request."""
    assert sync_command("aws", "a", "b", delete=False, verbose=True) == ["aws", "s3", "sync", "a", "b"]
    flags = sync_command("aws", "a", "b", delete=True, verbose=False)[5:]
    assert flags == ["--delete", "--only-show-errors"]


async def test_a_failed_command_reports_its_output():
    """The client sees the command and the end of its output."""
    await run(["true"])
    with pytest.raises(ApiError, match=r"`ls /no-such-folder` failed: .*/no-such-folder") as error:
        await run(["ls", "/no-such-folder"])
    assert error.value.status == 502
