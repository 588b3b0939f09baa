"""The port, health, reflection, and how a server stops."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from recalld.errors import InvalidField, SourceUnavailable
from recalld.v1 import memory_service_pb2 as pb

SERVICES = ("recalld.v1.MemoryService", "recalld.v1.AdminService")


async def status(client, service=""):
    stub = health_pb2_grpc.HealthStub(client.channel)
    return (await stub.Check(health_pb2.HealthCheckRequest(service=service))).status


async def test_port_0_takes_a_free_port_and_the_address_says_which(client):
    host, _, port = client.server.address.rpartition(":")
    assert host == "127.0.0.1"
    assert int(port) > 0


async def test_a_port_in_use_is_one_line_that_names_it(client, start):
    with pytest.raises(SourceUnavailable) as caught:
        await start(listen=client.server.address)
    assert client.server.address in str(caught.value)
    assert "in use" in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_nobody_can_share_the_port_silently(client):
    host, _, port = client.server.address.rpartition(":")
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        with pytest.raises(OSError, match="in use"):
            other.bind((host, int(port)))


async def test_a_port_is_free_again_after_the_stop(client, start):
    await client.server.stop()
    again = await start(listen=client.server.address)
    assert await status(again) == health_pb2.HealthCheckResponse.SERVING


async def test_a_host_that_does_not_exist_is_one_line(start):
    with pytest.raises(SourceUnavailable, match=r"192\.0\.2\.1:0"):
        await start(listen="192.0.2.1:0")


@pytest.mark.parametrize("service", ["", *SERVICES])
async def test_health_answers_for_the_server_and_each_service(client, service):
    assert await status(client, service) == health_pb2.HealthCheckResponse.SERVING


async def test_reflection_lists_the_services(client):
    stub = reflection_pb2_grpc.ServerReflectionStub(client.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    answers = [answer async for answer in stub.ServerReflectionInfo(iter([request]))]
    assert set(SERVICES) <= {each.name for each in answers[0].list_services_response.service}


async def test_reflection_can_be_turned_off(start):
    client = await start(reflection=False)
    stub = reflection_pb2_grpc.ServerReflectionStub(client.channel)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        [a async for a in stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))]
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.fixture
def certificate(tmp_path):
    """A certificate for localhost and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


async def test_tls_serves_with_the_certificate(start, certificate):
    cert, key = certificate
    client = await start(tls_cert=cert, tls_key=key)
    credentials = grpc.ssl_channel_credentials(cert.read_bytes())
    options = [("grpc.ssl_target_name_override", "localhost")]
    async with grpc.aio.secure_channel(client.server.address, credentials, options) as channel:
        assert await status(type(client)(client.server, channel)) == health_pb2.HealthCheckResponse.SERVING


async def test_a_tls_file_that_cannot_be_read_is_named(start):
    with pytest.raises(InvalidField, match=r"nowhere\.pem"):
        await start(tls_cert=Path("nowhere.pem"), tls_key=Path("nowhere.pem"))


async def test_a_stopping_server_says_so_and_refuses_new_calls(start, notebook, scope, fails):
    client = await start(linger=0.0, grace=20.0)
    notebook.reads.close()
    held = asyncio.ensure_future(client.memory.List(pb.ListRequest(scope=scope)))
    await notebook.reads.next()
    watch = health_pb2_grpc.HealthStub(client.channel).Watch(health_pb2.HealthCheckRequest())
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    stopping = asyncio.ensure_future(client.server.stop())
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert await status(client) == health_pb2.HealthCheckResponse.NOT_SERVING
    fault = await fails(client.memory.List(pb.ListRequest(scope=scope)))
    assert (fault.code.name, fault.reason) == ("UNAVAILABLE", "SOURCE_UNAVAILABLE")
    assert fault.retry_after
    assert not stopping.done()
    watch.cancel()
    notebook.reads.open()
    assert (await held).next_page_token == ""
    async with asyncio.timeout(20):
        await stopping


async def test_what_outlasts_the_grace_fails_with_unavailable(start, notebook, scope, fails):
    client = await start(grace=0.1)
    notebook.reads.close()
    notebook.writes.close()
    held = [
        asyncio.ensure_future(client.memory.List(pb.ListRequest(scope=scope))),
        asyncio.ensure_future(client.memory.BatchWrite(pb.BatchWriteRequest(scope=scope, items=[{"content": "x"}]))),
    ]
    stream = client.memory.Write(iter([pb.WriteRequest(scope=scope, sequence=1, items=[{"content": "y"}])]))
    held.append(asyncio.ensure_future(stream.read()))
    await notebook.reads.next()
    await notebook.writes.next()
    await notebook.writes.next()
    async with asyncio.timeout(20):
        await client.server.stop()
    for each in held:
        assert (await fails(each)).code == grpc.StatusCode.UNAVAILABLE


async def test_an_idle_stream_ends_at_once_and_does_not_hold_up_the_stop(start, scope, fails):
    client = await start(grace=60.0)
    stream = client.memory.Write()
    await stream.write(pb.WriteRequest(scope=scope, sequence=1, items=[{"content": "x"}]))
    assert (await stream.read()).sequence == 1
    async with asyncio.timeout(20):
        await client.server.stop()
    fault = await fails(stream.read())
    assert (fault.code.name, fault.reason) == ("UNAVAILABLE", "SOURCE_UNAVAILABLE")


async def test_a_stopping_server_acknowledges_what_a_stream_gave_it(start, notebook, scope, fails):
    client = await start(grace=60.0)
    notebook.writes.close()
    stream = client.memory.Write()
    for number in (1, 2):
        await stream.write(pb.WriteRequest(scope=scope, sequence=number, items=[{"content": f"c{number}"}]))
        await notebook.writes.next()
    stopping = asyncio.ensure_future(client.server.stop())
    while await status(client) == health_pb2.HealthCheckResponse.SERVING:
        pass
    notebook.writes.open()
    assert [(await stream.read()).sequence for _ in range(2)] == [1, 2]
    assert (await fails(stream.read())).code == grpc.StatusCode.UNAVAILABLE
    await stopping
    assert len(notebook.batches) == 2


async def test_callers_in_full_swing_see_answers_or_unavailable_and_never_cancelled(start, scope):
    client = await start(linger=0.4, grace=20.0)
    going = asyncio.Event()

    async def swing(number):
        async with grpc.aio.insecure_channel(client.server.address) as channel:
            stub = type(client)(client.server, channel).memory
            while True:
                try:
                    await stub.BatchWrite(pb.BatchWriteRequest(scope=scope, items=[{"content": f"c{number}"}]))
                except grpc.aio.AioRpcError as error:
                    return error.code()
                going.set()

    callers = [asyncio.ensure_future(swing(number)) for number in range(8)]
    await going.wait()
    await client.server.stop()
    assert set(await asyncio.gather(*callers)) == {grpc.StatusCode.UNAVAILABLE}


async def test_stopping_twice_is_stopping_once(client):
    await asyncio.gather(client.server.stop(), client.server.stop())
    await client.server.stop()
