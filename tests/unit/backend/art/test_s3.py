import pytest

from nat.backend.art import s3
from nat.backend.server.errors import ApiError
from nat.wire.art import ArtBucketRequest, ArtModel

MODEL = ArtModel(name="me", project="games")


def asked(**fields):
    return ArtBucketRequest(model=MODEL, **fields)


@pytest.mark.parametrize(
    ("fields", "environment", "address"),
    [
        ({"s3_bucket": "mine"}, {}, "s3://mine/games/models/me"),
        ({"s3_bucket": "mine", "prefix": "/a/b.c/"}, {}, "s3://mine/a/b.c/games/models/me"),
        ({}, {"BACKUP_BUCKET": "theirs"}, "s3://theirs/games/models/me"),
        ({"s3_bucket": "mine"}, {"BACKUP_BUCKET": "theirs"}, "s3://mine/games/models/me"),
    ],
)
def test_a_model_has_the_address_that_arts_own_server_gives_it(fields, environment, address):
    """The client's bucket, else the environment's; the prefix with or without slashes around it."""
    assert s3.address(asked(**fields), environment) == address


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "s3_bucket"),
        ({"s3_bucket": "--delete"}, "s3_bucket"),
        ({"s3_bucket": "a b"}, "s3_bucket"),
        ({"s3_bucket": "mine", "prefix": "../x"}, "prefix"),
        ({"s3_bucket": "mine", "prefix": "a//b"}, "prefix"),
        ({"s3_bucket": "mine", "prefix": "a;b"}, "prefix"),
    ],
)
def test_names_that_s3_does_not_have_are_refused(fields, param):
    """They become words of a command, so only plain names are taken."""
    with pytest.raises(ApiError) as error:
        s3.address(asked(**fields), {})
    assert (error.value.status, error.value.param) == (400, param)


def test_each_flag_of_the_client_is_one_of_the_command():
    """Deleting what is not here, and telling each file, happen only on request."""
    assert s3.sync_command("aws", "a", "b", delete=False, verbose=True) == ["aws", "s3", "sync", "a", "b"]
    flags = s3.sync_command("aws", "a", "b", delete=True, verbose=False)[5:]
    assert flags == ["--delete", "--only-show-errors"]


async def test_a_command_that_fails_tells_why():
    """The client sees the command and the end of what it said."""
    await s3.run(["true"])
    with pytest.raises(ApiError, match=r"`ls /no-such-folder` failed: .*/no-such-folder") as error:
        await s3.run(["ls", "/no-such-folder"])
    assert error.value.status == 502
