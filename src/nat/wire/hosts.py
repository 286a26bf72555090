"""Host names and addresses: lists of them, loopback, and all interfaces."""

from ipaddress import IPv4Address, IPv6Address, ip_address

from pydantic import SecretStr

HOST_LIST = r"^[A-Za-z0-9._:\[\]-]+(,[A-Za-z0-9._:\[\]-]+)*$"
"""Pattern of a server option: host names and addresses, comma-separated."""


def host_names(text: str | None) -> list[str]:
    """The names of a comma-separated list, in lower case and without brackets."""
    return [name.strip("[]").lower() for name in text.split(",")] if text else []


def is_loopback(host: str) -> bool:
    """True if only this machine can reach the address."""
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def check_public_host(host: str, api_key: SecretStr | None, variable: str) -> None:
    """Raise ValueError if other machines can reach the host and no key is set; `variable` is where to set one."""
    if api_key is None and not is_loopback(host):
        raise ValueError(f"host {host} can be reached from outside, so it needs a key that you set: {variable}")


def is_everywhere(host: str) -> bool:
    """True for 0.0.0.0 and ::, which mean all addresses of the machine."""
    address = _address(host)
    return address is not None and address.is_unspecified


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None
