import pytest
from hypothesis import given
from hypothesis import strategies as st

from nat.capture.address import Address, address_of


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:8000/v1",
        "http://127.0.0.1:8000",
        "http://0.0.0.0:8000/v1",
        "http://[::1]:8000/v1",
        "http://LOCALHOST:8000",
    ],
)
def test_all_names_of_this_machine_are_one(url):
    """A server on the loopback is the same server under every name that leads to it."""
    assert address_of(url) == Address("localhost", 8000)


def test_a_scheme_has_a_port():
    """A URL without a port means that of its scheme."""
    assert address_of("https://art.example.com/v1") == Address("art.example.com", 443)
    assert address_of("http://art.example.com") == Address("art.example.com", 80)


@pytest.mark.parametrize("url", ["", "art.example.com", "http://", "http://host:port/v1", "ftp://host", "http://[::1"])
def test_what_leads_nowhere_has_no_address(url):
    """A URL that is none is no error here; whoever sends to it gets to hear about it."""
    assert address_of(url) is None


@given(st.integers(1, 65535), st.sampled_from(["10.0.0.5", "gpu-box", "192.168.1.2"]))
def test_other_hosts_differ(port, host):
    """Another machine is never taken for this one, nor one port for another."""
    assert address_of(f"http://{host}:{port}") == Address(host, port)
