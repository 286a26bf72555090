"""Which hosts are this machine."""

from ipaddress import IPv4Address, IPv6Address, ip_address

HOST_LIST = r"^[A-Za-z0-9._:\[\]-]+(,[A-Za-z0-9._:\[\]-]+)*$"
"""Names and addresses with commas between them, as the options of servers take them."""


def host_names(text: str | None) -> list[str]:
    """The names of such a list, as they are compared."""
    return [name.strip("[]").lower() for name in text.split(",")] if text else []


def is_loopback(host: str) -> bool:
    """True for an address that only this machine can reach."""
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def is_everywhere(host: str) -> bool:
    """True for 0.0.0.0 and ::, under which a server listens on all addresses of its machine."""
    address = _address(host)
    return address is not None and address.is_unspecified


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None
