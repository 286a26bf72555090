"""Where a server listens, so that two URLs can be compared. Pure."""

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}
_THIS_MACHINE = "localhost"


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port; all names of this machine's own loopback are one host."""

    host: str
    port: int


def address_of(url: str) -> Address | None:
    """The address that a URL leads to; None if it names none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:  # brackets that do not close, or a port that is no number
        return None
    if not host or port is None:
        return None
    return Address(_THIS_MACHINE if is_this_machine(host) else host.lower(), port)


def is_this_machine(host: str) -> bool:
    """True for `localhost`, for loopback addresses, and for 0.0.0.0, which as a target means the same."""
    if host.lower() == _THIS_MACHINE:
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
