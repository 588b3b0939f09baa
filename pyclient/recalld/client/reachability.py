"""What lies between a client and its server: whether a proxy does, and why a connection did not come about."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

#: The variables that gRPC takes a proxy from, and those that keep hosts from it; the first that is set counts.
_PROXY_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")
_EXCEPTION_VARIABLES = ("no_grpc_proxy", "no_proxy")

_SCHEME = re.compile(r"(dns|ipv4|ipv6):(//[^/]*/)?")
_SHORT_LOOPBACK = re.compile(r"127(\.\d{1,3}){1,3}")

_RESOLVING = re.compile(r"errors resolving (?P<name>.+?):?(?P<port>\d*): \[")
_CERTIFICATE = re.compile(r"CERTIFICATE_VERIFY_FAILED: (?P<why>[^:]+)")
_PROXY_ANSWER = re.compile(r"HTTP proxy returned response code (?P<code>\d+)")
_LAST_ERROR = re.compile(r"failed to connect to all addresses; last error: \w+: (?P<rest>.+)", re.DOTALL)
_ADDRESS = re.compile(r"(ipv4|ipv6):\S+?: ")


def host_of(target: str) -> str:
    """The host of a gRPC target, `HOST:PORT` or `dns:///HOST:PORT`; of an IPv6 address without its brackets."""
    return _SCHEME.sub("", target, count=1).rpartition(":")[0].strip("[]")


def is_loopback(target: str) -> bool:
    """Whether a gRPC target is this machine."""
    host = host_of(target).lower()
    if host == "localhost" or host.endswith(".localhost") or _SHORT_LOOPBACK.fullmatch(host):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback or address.is_unspecified


def proxy_options(target: str) -> list[tuple[str, int | str]]:
    """The channel options that keep calls to this machine from a proxy: gRPC sends even those through `http_proxy`."""
    return [("grpc.enable_http_proxy", 0)] if is_loopback(target) else []


def find_proxy(target: str, environment: Mapping[str, str] = os.environ) -> tuple[str, str] | None:
    """The variable and the address, without credentials, of the proxy that gRPC takes to the target; None for none."""
    if is_loopback(target) or target.startswith("unix"):
        return None
    variable = next((name for name in _PROXY_VARIABLES if environment.get(name)), None)
    exceptions = next((environment[name] for name in _EXCEPTION_VARIABLES if environment.get(name)), "")
    if variable is None or _excepted(host_of(target), [each.strip() for each in exceptions.split(",")]):
        return None
    value = environment[variable]
    parts = urlsplit(value if "://" in value else f"http://{value}")
    return variable, f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def never_connected(details: str) -> bool:
    """Whether what gRPC says of an UNAVAILABLE call means that there was no connection; else one broke, or the server
    spoke."""
    return details.startswith(("failed to connect to all addresses", "errors resolving"))


def explain_unreachable(target: str, details: str, *, tls: bool, environment: Mapping[str, str] = os.environ) -> str:
    """One sentence on a connection that did not come about: what was tried and why it failed.

    details: what gRPC says of the failed call. tls: whether the call was made over TLS.
    """
    proxy = find_proxy(target, environment)
    way = f", through the proxy {proxy[1]} of {proxy[0]}" if proxy else ""
    return f"cannot reach {target} {'over TLS' if tls else 'in the clear'}{way}: {_why(target, details, tls, proxy)}"


def _why(target: str, details: str, tls: bool, proxy: tuple[str, str] | None) -> str:
    there = "the proxy" if proxy else "the server"
    if found := _RESOLVING.search(details):
        return f"the name {found['name']!r}{' of the proxy' if proxy else ''} is not known"
    if found := _PROXY_ANSWER.search(details):
        return f"the proxy does not let it through, it answers {found['code']}"
    if "Connection refused" in details:
        return f"{'the proxy is not there' if proxy else 'nothing listens there'}, the connection is refused"
    if "WRONG_VERSION_NUMBER" in details:
        return f"{there} does not speak TLS; ask it in the clear"
    if found := _CERTIFICATE.search(details):
        return f"the server's certificate is not trusted ({found['why'].strip()}); name the CA that vouches for it"
    if "Hostname Verification Check failed" in details:
        return f"the server's certificate is for another name than {host_of(target)}"
    if "Failed to create security handshaker" in details:
        return "the certificates of the CA or the client's own are no PEM certificates"
    if "http1.x server" in details:
        return f"{there} speaks HTTP/1 and no gRPC; it may be another server's port"
    if "Socket closed" in details or "Connection reset" in details:
        return f"{there} hung up at once; it may {'want a client certificate' if tls else 'speak TLS only'}"
    if found := _LAST_ERROR.search(details):
        return _ADDRESS.sub("", found["rest"], count=1).removeprefix("Failed to connect to remote host: ")
    return details or "no reason was told"


def _excepted(host: str, exceptions: Sequence[str]) -> bool:
    """Whether a list as in `no_proxy` names the host: the ends of names, addresses, networks."""
    for each in filter(None, exceptions):
        if host.lower().endswith(each.lower()):
            return True
        try:
            if ipaddress.ip_address(host) in ipaddress.ip_network(each, strict=False):
                return True
        except ValueError:  # a name, not an address
            continue
    return False
