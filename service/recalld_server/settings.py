"""Every setting of the server: its name, default, meaning, and where it may come from.

Flags come first, then `RECALLD_*` environment variables, then the TOML file, then the defaults. Sources are lists of
tables, so they have no flag, and as JSON in the environment they are hard to read: the file is their place.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as UnreadableSetting

from recalld.errors import RecalldError
from recalld.limits import SMALLEST_MESSAGE_BYTES, Limits
from recalld_server.setting_problems import about, tell_problems

ENV_PREFIX = "RECALLD_"


class SettingsError(RecalldError, ValueError):
    """A setting is wrong; the message is one line and names it."""


class _Source(BaseModel):
    """What every source has.

    name: how requests and answers call it. read_only: refuse writes as an error, or ignore (drop and report) them.
    """

    model_config = ConfigDict(extra="forbid")

    name: str
    read_only: Literal["refuse", "ignore"] | None = None

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
            raise ValueError(
                f"must be 1 to 64 ASCII letters, digits, `_`, `.` and `-`, the first a letter or digit, not {name!r}"
            )
        return name


class LanceSource(_Source):
    """A further embedded LanceDB source, in a folder of its own below the data directory."""

    type: Literal["lancedb"]


class FilesSource(_Source):
    """A directory tree of text files, read-only; served to one tenant where `org_id` and `domain_id` are given, else to
    all."""

    type: Literal["files"]
    path: Path
    org_id: str | None = Field(default=None, min_length=1)
    domain_id: str | None = Field(default=None, min_length=1)

    @field_validator("path")
    @classmethod
    def _is_directory(cls, path: Path) -> Path:
        if not path.is_dir():
            raise ValueError(f"{path} is not a directory")
        return path

    @model_validator(mode="after")
    def _whole_scope(self) -> FilesSource:
        if (self.org_id is None) != (self.domain_id is None):
            raise ValueError("org_id and domain_id go together")
        return self


class RemoteSource(_Source):
    """Another recalld.

    target: `HOST:PORT`. sources: which of its sources; empty means all. timeout: seconds a call.
    token_env: the environment variable that holds the bearer token. tls_ca: a PEM file; given, the channel is TLS.
    """

    type: Literal["remote"]
    target: str = Field(min_length=1)
    sources: tuple[str, ...] = ()
    timeout: float = Field(default=10.0, gt=0, le=3600)
    token_env: str | None = None
    tls_ca: Path | None = None


SourceSettings = Annotated[LanceSource | FilesSource | RemoteSource, Field(discriminator="type")]


class Settings(BaseSettings):
    """The settings of `recalld serve`."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", env_ignore_empty=True)

    data: str = Field(default="./recalld-data", min_length=1, description="directory (or object store URI) of the data")
    listen: str = Field(
        default="127.0.0.1:50051",
        description="HOST:PORT to listen on; port 0 takes a free port",
    )
    name: str = Field(
        default="recalld", min_length=1, max_length=64, description="the name that the server gives its composition"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="the lowest level that is logged"
    )
    grace: float = Field(
        default=10.0, ge=0, le=600, description="seconds that a stopping server gives to what it has taken"
    )
    tls_cert: Path | None = Field(default=None, description="PEM certificate chain; serves TLS together with tls_key")
    tls_key: Path | None = Field(default=None, description="PEM private key of tls_cert")
    durability: Literal["fsync", "commit"] = Field(
        default="fsync",
        description="fsync: acknowledged writes survive a power cut; commit: only a crash of the server",
    )
    open_tables: int = Field(default=256, ge=1, le=100_000, description="how many scopes are kept open at once")
    cache_mib: int = Field(
        default=192, ge=16, le=1_000_000, description="MiB of index and metadata cache for all scopes"
    )
    vector_index_rows: int = Field(
        default=50_000, ge=1000, description="rows of a scope from which on a vector index is built"
    )
    receipt_days: float = Field(default=7.0, gt=0, le=3650, description="days that an idempotency key is remembered")
    expired_days: float = Field(
        default=7.0, ge=0, le=36_500, description="days that an expired memory is kept before it is erased"
    )
    model: Path | None = Field(
        default=None,
        description="directory of an embedding model in the Hugging Face ONNX layout; default: the bundled",
    )
    model_pooling: Literal["mean", "cls"] | None = Field(
        default=None, description="how token vectors become one; default: what the model's files say"
    )
    model_max_tokens: int | None = Field(
        default=None, ge=8, le=8192, description="tokens of a text that are read; default: what the model's files say"
    )
    model_query_prefix: str | None = Field(
        default=None, description="text put before every query; default: what the model's files say"
    )
    model_document_prefix: str | None = Field(
        default=None, description="text put before every memory; default: what the model's files say"
    )
    model_threads: int | None = Field(
        default=None, ge=1, le=256, description="threads of the model; default: the cores, up to 4"
    )
    max_message_bytes: int = Field(
        default=Limits().max_message_bytes,
        ge=SMALLEST_MESSAGE_BYTES,
        le=64 * 1024 * 1024,
        description="the largest message either way",
    )
    max_batch_items: int = Field(
        default=Limits().max_batch_items, ge=1, le=10_000, description="the most items of one batch"
    )
    max_concurrent_queries: int = Field(default=64, ge=1, le=10_000, description="queries at work at once")
    max_concurrent_writes: int = Field(default=64, ge=1, le=10_000, description="writes at work at once")
    max_waiting_bytes: int = Field(
        default=64 * 1024 * 1024,
        ge=1024 * 1024,
        le=2**40,
        description="bytes of messages that wait for their turn, of all calls and streams together",
    )
    stall_seconds: float = Field(
        default=30.0, gt=0, le=3600, description="seconds that a client may read nothing of a streamed answer"
    )
    demo_data: bool = Field(default=False, description="writes the sample memories into the scope demo/demo at start")
    sources: list[SourceSettings] = Field(
        default_factory=list[SourceSettings],
        description="further sources, as [[sources]] tables of the file; one named `memory` replaces the default",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        for one, other in (("tls_cert", "tls_key"), ("tls_key", "tls_cert")):
            if getattr(self, one) is not None and getattr(self, other) is None:
                raise about(one, f"needs {other} as well")
        names = [source.name for source in self.sources]
        for name in names:
            if names.count(name) > 1:
                raise about("sources", f"two are named {name!r}")
        return self

    @field_validator("listen")
    @classmethod
    def _host_and_port(cls, listen: str) -> str:
        if not re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]\s]+):\d{1,5}", listen):
            raise ValueError(f"must be HOST:PORT, not {listen!r}")
        if int(listen.rpartition(":")[2]) > 65535:
            raise ValueError("the port is over 65535")
        return listen

    @field_validator("tls_cert", "tls_key", "model")
    @classmethod
    def _exists(cls, path: Path | None) -> Path | None:
        if path is not None and not path.exists():
            raise ValueError(f"{path} does not exist")
        return path

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings


def flag_of(name: str) -> str:
    """The flag of a setting on the command line."""
    return "--" + name.replace("_", "-")


def load_settings(
    given: Mapping[str, Any], config: Path | None, *, spelled: Callable[[str], str] = flag_of
) -> Settings:
    """The settings of one server. Raises SettingsError, one line that names each setting at fault as it was written.

    given: what comes before the environment and the file; `spelled` gives the names that they were given by.
    """
    table = _read_toml(config) if config is not None else {}
    unknown = sorted(table.keys() - Settings.model_fields.keys())
    if unknown:
        raise SettingsError("; ".join(f"{config}: {name} is not a setting" for name in unknown))
    # A value of the file stands only where neither a flag nor the environment has one.
    variables = _variables()
    values = {name: value for name, value in table.items() if name not in variables} | dict(given)

    def spell(name: str) -> str:
        if name in given:
            return spelled(name)
        if name in variables:
            return variables[name]
        return f"{config}: {name}" if name in table else name

    try:
        return Settings(**values)
    except ValidationError as error:
        raise SettingsError(tell_problems(error, spell)) from None
    except UnreadableSetting:
        raise SettingsError(f"{spell('sources')}: is not JSON; use [[sources]] tables of the file") from None


def _variables() -> Mapping[str, str]:
    """The environment variable of each setting that has one, spelled as it is there."""
    settings = {ENV_PREFIX + name.upper(): name for name in Settings.model_fields}
    return {settings[each.upper()]: each for each, value in os.environ.items() if value and each.upper() in settings}


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"config: cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"config: {path} is not TOML: {error}") from None


def unknown_variables() -> Sequence[str]:
    """The `RECALLD_*` variables that are no setting: most likely a slip of the keyboard."""
    known = {ENV_PREFIX + name.upper() for name in Settings.model_fields} | {ENV_PREFIX + "CONFIG"}
    return sorted(name for name in os.environ if name.startswith(ENV_PREFIX) and name not in known)
