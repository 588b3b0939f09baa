"""Puts a server together from its settings: the only module that knows every layer."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from recalld._version import __version__
from recalld.limits import Limits
from recalld.scope import Scope
from recalld.sources.remote import TLSConfig
from recalld_server.adapters.files.source import FilesSource
from recalld_server.adapters.lancedb.config import LanceConfig
from recalld_server.adapters.lancedb.layout import open_layout
from recalld_server.adapters.lancedb.store import open_store
from recalld_server.adapters.onnx.config import EmbedderConfig
from recalld_server.adapters.onnx.embedder import OnnxEmbedder, load_embedder
from recalld_server.adapters.remote.source import RemoteSource
from recalld_server.application import Application, ServerDescription, SourceDescription
from recalld_server.application.change import ChangeMemories
from recalld_server.application.composition import Composition, holds_records
from recalld_server.application.embedded import EmbeddedSource
from recalld_server.application.fusion import DEFAULT_CANDIDATES, DEFAULT_RANK_CONSTANT
from recalld_server.application.query import QueryMemories
from recalld_server.application.read import ReadMemories
from recalld_server.application.read_only import ReadOnlyRecords, ReadOnlySource
from recalld_server.application.write import WriteMemories
from recalld_server.logs import log_to_stderr
from recalld_server.ports import ModelIdentity, Source
from recalld_server.samples import SAMPLE_SCOPE, sample_items
from recalld_server.settings import FilesSource as FilesSettings
from recalld_server.settings import LanceSource as LanceSettings
from recalld_server.settings import RemoteSource as RemoteSettings
from recalld_server.settings import Settings, SettingsError, SourceSettings, unknown_variables
from recalld_server.transport.server import TransportConfig, serve

_LOG = logging.getLogger(__name__)

#: The source that is there without being asked for.
_DEFAULT_SOURCE = LanceSettings(name="memory", type="lancedb")


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def run_server(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT, then finishes what it took. Raises RecalldError when it cannot start."""
    log_to_stderr(settings.log_level)
    asyncio.run(_run(settings))


async def _run(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop.set)
    async with application(settings) as served:
        if settings.demo_data:
            # The samples have ids of their own, so that a second start writes them again in place.
            await served.write(SAMPLE_SCOPE, sample_items(), idempotency_key="", sources=[_DEFAULT_SOURCE.name])
        server = await serve(served, _transport(settings))
        _say_what_is_served(settings, served.describe())
        print(f"recalld ready on {server.address}", flush=True)  # noqa: T201 - what starts a server waits for this line
        await stop.wait()
        await server.stop()


@asynccontextmanager
async def application(settings: Settings) -> AsyncGenerator[Application]:
    """The use cases over the configured sources; closes them in the end. Raises RecalldError when one cannot open."""
    if any(isinstance(source, LanceSettings) for source in _configured(settings)):
        await asyncio.to_thread(open_layout, settings.data)  # a wrong directory is told before the model is loaded
    embedder = await asyncio.to_thread(load_embedder, _embedder_config(settings))
    try:
        await embedder.warm()
        composition = await _compose(settings, embedder)
        try:
            yield _wire(composition, embedder.identity)
        finally:
            await composition.close()
    finally:
        await embedder.close()


def _say_what_is_served(settings: Settings, served: ServerDescription) -> None:
    _LOG.info(
        "started",
        extra={
            "version": served.version,
            "data": settings.data,
            "durability": settings.durability,
            "model": served.model.name,
            "sources": [source.name for source in served.sources],
        },
    )
    for name in unknown_variables():
        _LOG.warning("unknown_setting", extra={"variable": name})


def _configured(settings: Settings) -> Sequence[SourceSettings]:
    if any(source.name == _DEFAULT_SOURCE.name for source in settings.sources):
        return settings.sources
    return [_DEFAULT_SOURCE, *settings.sources]


def _wire(composition: Composition, model: ModelIdentity) -> Application:
    def describe() -> ServerDescription:
        return ServerDescription(
            version=__version__,
            name=composition.name,
            sources=[SourceDescription(s.name, s.kind, s.accepts_writes) for s in composition.sources],
            model=model,
            rank_fusion_k=DEFAULT_RANK_CONSTANT,
            lexical_weight=0.5,
            semantic_weight=0.5,
            candidates=DEFAULT_CANDIDATES,
        )

    return Application(
        name=composition.name,
        query=QueryMemories(composition),
        write=WriteMemories(composition),
        read=ReadMemories(composition),
        change=ChangeMemories(composition),
        describe=describe,
    )


async def _compose(settings: Settings, embedder: OnnxEmbedder) -> Composition:
    opened: list[Source] = []
    try:
        for source in _configured(settings):
            opened.append(_guarded(await _open(settings, source, embedder), source))
    except BaseException:
        await Composition(settings.name, opened).close()
        raise
    return Composition(settings.name, opened)


async def _open(settings: Settings, source: SourceSettings, embedder: OnnxEmbedder) -> Source:
    match source:
        case LanceSettings():
            store = await open_store(_lance_config(settings, source.name, embedder.identity))
            return EmbeddedSource(source.name, store, embedder, SystemClock())
        case FilesSettings():
            only = Scope(source.org_id, source.domain_id) if source.org_id is not None else None
            return FilesSource(source.name, source.path, only)
        case RemoteSettings():
            return RemoteSource(
                source.name,
                source.target,
                token=_token(source),
                tls=TLSConfig(ca=source.tls_ca) if source.tls_ca else None,
                sources=source.sources,
                timeout=source.timeout,
            )


def _guarded(source: Source, settings: SourceSettings) -> Source:
    if settings.read_only is None:
        return source
    return (ReadOnlyRecords if holds_records(source) else ReadOnlySource)(source, settings.read_only)


def _token(source: RemoteSettings) -> str | None:
    if source.token_env is None:
        return None
    token = os.environ.get(source.token_env)
    if not token:
        raise SettingsError(f"sources.{source.name}.token_env: the environment variable {source.token_env} is not set")
    return token


def _embedder_config(settings: Settings) -> EmbedderConfig:
    return EmbedderConfig(
        model=settings.model,
        query_prefix=settings.model_query_prefix,
        document_prefix=settings.model_document_prefix,
        pooling=settings.model_pooling,
        max_tokens=settings.model_max_tokens,
        threads=settings.model_threads,
    )


def _lance_config(settings: Settings, name: str, model: ModelIdentity) -> LanceConfig:
    mebibyte = 1024 * 1024
    return LanceConfig(
        name=name,
        root=settings.data if name == _DEFAULT_SOURCE.name else f"{settings.data.rstrip('/')}/sources/{name}",
        model=model,
        durability=settings.durability,
        # Four parts in five for the indexes: their pages are what every query touches.
        index_cache_bytes=settings.cache_mib * mebibyte * 4 // 5,
        metadata_cache_bytes=settings.cache_mib * mebibyte // 5,
        open_tables=settings.open_tables,
        vector_index_threshold=settings.vector_index_rows,
        receipt_retention=timedelta(days=settings.receipt_days),
    )


def _transport(settings: Settings) -> TransportConfig:
    return TransportConfig(
        listen=settings.listen,
        grace=settings.grace,
        limits=replace(
            Limits(), max_message_bytes=settings.max_message_bytes, max_batch_items=settings.max_batch_items
        ),
        max_concurrent_queries=settings.max_concurrent_queries,
        max_concurrent_writes=settings.max_concurrent_writes,
        tls_cert=settings.tls_cert,
        tls_key=settings.tls_key,
    )
