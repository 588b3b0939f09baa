"""Whom a client trusts, and who it is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import grpc

from recalld.errors import InvalidField


@dataclass(frozen=True)
class TLSConfig:
    """How to trust the server and, for mutual TLS, who we are. Each part is PEM bytes or a path to a PEM file.

    ca: the roots; None for the system's. cert, key: the client's certificate chain and key, both or neither.
    server_name_override: the name that the server's certificate must have, where it is not that of the target.
    Raises InvalidField (a ValueError) for a certificate without key or the reverse.
    """

    ca: bytes | str | os.PathLike[str] | None = None
    cert: bytes | str | os.PathLike[str] | None = None
    key: bytes | str | os.PathLike[str] | None = None
    server_name_override: str | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise InvalidField(violations={"tls": "needs both cert and key, or neither"})

    def credentials(self) -> grpc.ChannelCredentials:
        """The channel credentials; reads the files. Raises InvalidField naming a file that cannot be read."""
        return grpc.ssl_channel_credentials(
            _read_pem("ca", self.ca), _read_pem("key", self.key), _read_pem("cert", self.cert)
        )


def _read_pem(part: str, value: bytes | str | os.PathLike[str] | None) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    try:
        return Path(value).read_bytes()
    except OSError as error:
        raise InvalidField(violations={f"tls.{part}": f"cannot be read: {error}"}) from error
