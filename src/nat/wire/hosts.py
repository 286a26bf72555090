"""Host names and addresses: lists of them, loopback, and all interfaces."""

from ipaddress import IPv4Address, IPv6Address, ip_address

HOST_LIST = r"^[A-Za-z0-9._:\[\]-]+(,[A-Za-z0-9._:\[\]-]+)*$"
"""Pattern of a server option: names and addresses, separated by commas."""


def host_names(text: str | None) -> list[str]:
    """The names of such a list in the form for comparisons."""
    return [name.strip("[]").lower() for name in text.split(",")] if text else []


def is_loopback(host: str) -> bool:
    """True if only this machine can reach the address."""
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def is_everywhere(host: str) -> bool:
    """True for 0.0.0.0 and ::, which mean all addresses of the machine."""
    address = _address(host)
    return address is not None and address.is_unspecified


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None
