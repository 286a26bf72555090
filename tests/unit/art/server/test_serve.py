import pytest

from nat.art.options import ArtServeOptions
from nat.art.server.routes import greeting
from nat.backend.serve import claimed, serve
from nat.errors import BackendError


@pytest.fixture
def options(tmp_path):
    """Options without a model: errors are raised before a model would be loaded."""
    return {"model": tmp_path / "nowhere", "port": 0, "inference_port": 0, "output_dir": tmp_path / "art"}


def test_a_second_server_on_the_same_folder_is_refused(options, tmp_path):
    """A second server on the same folder is refused; the error names the owner and a remedy."""
    with claimed(tmp_path / "art"), pytest.raises(BackendError, match="in use by another server") as error:
        serve(ArtServeOptions(**options))
    assert "--output_dir" in error.value.hint


@pytest.mark.parametrize(
    ("host", "key", "lines"),
    [
        (
            "127.0.0.1",
            None,
            ["key: default", "http://127.0.0.1:7623\n", "http://127.0.0.1:8000/v1", 'url="http://127.0.0.1:7623/v1"'],
        ),
        ("0.0.0.0", "mine", ["http://gpu-box:8000/v1", 'api_key="KEY", base_url="http://gpu-box:7623/v1"']),
    ],
)
def test_the_greeting_has_the_addresses(options, host, key, lines):
    """The greeting has both URLs for clients, the key if it is the well-known one, and the checkpoints' folder."""
    asked = ArtServeOptions(**options, host=host, api_key=key)
    text = greeting(asked, port=7623, inference_port=8000, hostname="gpu-box")
    assert [line for line in [*lines, str(options["output_dir"])] if line not in text] == []
    assert "mine" not in text
