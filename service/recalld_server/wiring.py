"""Puts a server together from its settings: the only module that knows every layer."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TypeAlias

from recalld._version import __version__
from recalld.decorators.read_only import ReadOnlyMemory
from recalld.engine import LocalMemory
from recalld.engine.fusion import DEFAULT_CANDIDATES, DEFAULT_RANK_CONSTANT
from recalld.engine.ports import ModelIdentity
from recalld.fusion import rank_across_sources
from recalld.limits import LIMITS, Limits
from recalld.scope import Ctx, Scope
from recalld.source import MemorySource, accepts_writes
from recalld.sources.composite import CompositeMemory
from recalld.sources.directory import DirectoryFiles
from recalld.sources.file import FileMemory
from recalld.sources.remote import RemoteMemory, TLSConfig
from recalld.store import WriteBatch
from recalld_server.adapters.lancedb import LanceConfig, open_records
from recalld_server.adapters.lancedb.layout import open_layout
from recalld_server.adapters.onnx.config import EmbedderConfig
from recalld_server.adapters.onnx.embedder import OnnxEmbedder, load_embedder
from recalld_server.logs import log_to_stderr
from recalld_server.samples import SAMPLE_SCOPE, sample_items
from recalld_server.settings import FilesSource as FilesSettings
from recalld_server.settings import LanceSource as LanceSettings
from recalld_server.settings import RemoteSource as RemoteSettings
from recalld_server.settings import Settings, SettingsError, SourceSettings, unknown_variables
from recalld_server.transport.served import Served, ServerDescription, SourceDescription
from recalld_server.transport.server import TransportConfig, serve

_LOG = logging.getLogger(__name__)

#: A search shares its answer with other sources, which should not wait long for one that is down.
_SEARCH_ATTEMPTS = 4

#: The source that is there without being asked for.
_DEFAULT_SOURCE = LanceSettings(name="memory", type="lancedb")


def run_server(settings: Settings) -> None:
    """Serves until SIGTERM, SIGINT or SIGHUP, then finishes what it took. Raises RecalldError when it cannot start."""
    log_to_stderr(settings.log_level)
    asyncio.run(_run(settings))


async def _run(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    # A hang-up (a closed terminal, some supervisors' reload) ends the server as well, and drains like the others.
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(each, stop.set)
    async with open_served(settings) as served:
        if settings.demo_data:
            # The samples have ids of their own, so that a second start writes them again in place.
            memory = served.memory.select([_DEFAULT_SOURCE.name])
            (await memory.commit(WriteBatch(sample_items()), ctx=Ctx(SAMPLE_SCOPE))).raise_for_failures()
        server = await serve(served, _transport(settings))
        _say_what_is_served(settings, served.describe())
        # What a full collection would walk through again and again, with the loop at a stop, is here to stay.
        gc.collect()
        gc.freeze()
        print(f"recalld ready on {server.address}", flush=True)  # noqa: T201 - what starts a server waits for this line
        await stop.wait()
        await server.stop()


#: Raises when what it checks is gone or does not answer.
Check: TypeAlias = "Callable[[], Awaitable[None]]"


@asynccontextmanager
async def open_served(settings: Settings) -> AsyncGenerator[Served]:
    """The configured memory; closes it in the end. Raises RecalldError when a source cannot open."""
    if any(isinstance(source, LanceSettings) for source in _configured(settings)):
        await asyncio.to_thread(open_layout, settings.data)  # a wrong directory is told before the model is loaded
    embedder = await asyncio.to_thread(load_embedder, embedder_config(settings))
    try:
        await embedder.warm()
        checks: list[Check] = []
        memory = await _compose(settings, embedder, checks)

        async def check() -> None:
            await asyncio.gather(*(each() for each in checks))

        try:
            yield Served(memory, lambda: _describe(memory, settings, embedder.identity), check)
        finally:
            await memory.close()
    finally:
        await embedder.close()


async def open_memory(
    settings: Settings, name: str, root: str, embedder: OnnxEmbedder, *, limits: Limits | None
) -> LocalMemory:
    """The engine over LanceDB at a root, a directory or the URI of an object store. limits: None behind a door that has
    checked. Raises RecalldError when it cannot open."""
    records = await open_records(_lance_config(settings, name, root, embedder.identity))
    return LocalMemory(records, embedder, limits=limits)


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


def _describe(memory: CompositeMemory, settings: Settings, model: ModelIdentity) -> ServerDescription:
    kinds = {source.name: source.type for source in _configured(settings)}
    return ServerDescription(
        version=__version__,
        name=memory.name,
        sources=[SourceDescription(s.name, kinds[s.name], accepts_writes(s)) for s in memory.sources],
        model=model,
        rank_fusion_k=DEFAULT_RANK_CONSTANT,
        lexical_weight=0.5,
        semantic_weight=0.5,
        candidates=DEFAULT_CANDIDATES,
    )


async def _compose(settings: Settings, embedder: OnnxEmbedder, checks: list[Check]) -> CompositeMemory:
    """The sources as one memory. Sources number their records each on their own, and their scores do not compare.

    checks: takes what tells whether the place of a source's records is still there.
    """
    opened: list[MemorySource] = []
    try:
        for source in _configured(settings):
            opened.append(_guarded(await _open(settings, source, embedder, checks), source))
        return CompositeMemory(opened, rank_across_sources, settings.name, "origin")
    except BaseException:
        await CompositeMemory(opened).close()
        raise


async def _open(
    settings: Settings, source: SourceSettings, embedder: OnnxEmbedder, checks: list[Check]
) -> MemorySource:
    match source:
        case LanceSettings():
            further = "" if source.name == _DEFAULT_SOURCE.name else f"/sources/{source.name}"
            root = settings.data.rstrip("/") + further
            records = await open_records(_lance_config(settings, source.name, root, embedder.identity))
            checks.append(records.check)
            return LocalMemory(records, embedder, limits=None)  # the door has checked
        case FilesSettings():
            only = Scope(source.org_id, source.domain_id) if source.org_id is not None else None
            files = DirectoryFiles(source.path, max_bytes=LIMITS.max_content_bytes)
            # A directory that people keep is not an agent's to change.
            return ReadOnlyMemory(FileMemory(files, source.name, scope=only), on_write="ignore")
        case RemoteSettings():
            return RemoteMemory(
                source.target,
                name=source.name,
                token=_token(source),
                tls=TLSConfig(ca=source.tls_ca) if source.tls_ca else None,
                sources=source.sources,
                timeout=source.timeout,
                search_attempts=_SEARCH_ATTEMPTS,
            )


def _guarded(source: MemorySource, settings: SourceSettings) -> MemorySource:
    return source if settings.read_only is None else ReadOnlyMemory(source, on_write=settings.read_only)


def _token(source: RemoteSettings) -> str | None:
    if source.token_env is None:
        return None
    token = os.environ.get(source.token_env)
    if not token:
        raise SettingsError(f"sources.{source.name}.token_env: the environment variable {source.token_env} is not set")
    return token


def embedder_config(settings: Settings) -> EmbedderConfig:
    return EmbedderConfig(
        model=settings.model,
        query_prefix=settings.model_query_prefix,
        document_prefix=settings.model_document_prefix,
        pooling=settings.model_pooling,
        max_tokens=settings.model_max_tokens,
        threads=settings.model_threads,
    )


def _lance_config(settings: Settings, name: str, root: str, model: ModelIdentity) -> LanceConfig:
    mebibyte = 1024 * 1024
    return LanceConfig(
        name=name,
        root=root,
        model=model,
        durability=settings.durability,
        # Four parts in five for the indexes: their pages are what every query touches.
        index_cache_bytes=settings.cache_mib * mebibyte * 4 // 5,
        metadata_cache_bytes=settings.cache_mib * mebibyte // 5,
        open_tables=settings.open_tables,
        vector_index_threshold=settings.vector_index_rows,
        receipt_retention=timedelta(days=settings.receipt_days),
        expired_retention=timedelta(days=settings.expired_days),
    )


def limits_of(settings: Settings) -> Limits:
    """The limits of the contract, with those that the operator set."""
    return replace(LIMITS, max_message_bytes=settings.max_message_bytes, max_batch_items=settings.max_batch_items)


def _transport(settings: Settings) -> TransportConfig:
    return TransportConfig(
        listen=settings.listen,
        grace=settings.grace,
        limits=limits_of(settings),
        max_concurrent_queries=settings.max_concurrent_queries,
        max_concurrent_writes=settings.max_concurrent_writes,
        max_waiting_bytes=settings.max_waiting_bytes,
        stall_seconds=settings.stall_seconds,
        tls_cert=settings.tls_cert,
        tls_key=settings.tls_key,
    )
