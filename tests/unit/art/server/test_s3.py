import pytest

from nat.art.server import s3
from nat.art.wire import ArtBucketRequest, ArtModel
from nat.http.errors import ApiError

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
    """The client's bucket, else the owner's first; the prefix with or without slashes around it."""
    assert s3.address(asked(**fields), ["first", "mine"]) == address


@pytest.mark.parametrize("prefix", ["../x", "a//b", "a;b", "--delete"])
def test_prefixes_that_s3_does_not_have_are_refused(prefix):
    """They become words of a command, so only plain names are taken."""
    with pytest.raises(ApiError) as error:
        s3.address(asked(prefix=prefix), ["mine"])
    assert (error.value.status, error.value.param) == (400, "prefix")


@pytest.mark.parametrize(("bucket", "buckets"), [("theirs", ["mine"]), (None, []), ("mine", [])])
def test_only_buckets_that_the_owner_named_are_used(bucket, buckets):
    """The server's credentials may open others, and no client decides about those."""
    with pytest.raises(ApiError) as error:
        s3.address(asked(s3_bucket=bucket), buckets)
    assert (error.value.status, error.value.param) == (403, "s3_bucket")


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
