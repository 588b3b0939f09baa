"""A process that used a RemoteMemory forks: the child connects anew, or says at once why it cannot."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

#: Forks in a process of its own, and prints what each of two children and then the parent get.
SCRIPT = """
import asyncio, os, sys
from recalld import Ctx, RemoteMemory, Scope

target, when = sys.argv[1:]
memory = RemoteMemory(target)

async def ask(memory):
    return [item.content for item in await memory.query("words", k=1, ctx=Ctx(Scope("acme", "support")))]

def answer(source):
    try:
        return str(asyncio.run(ask(source)))
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def fork():
    for name, source in (("same", lambda: memory), ("new", lambda: RemoteMemory(target))):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, answer(source()).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as told:  # ends when the child does
            print(name, told.read(), os.waitpid(child, 0)[1], flush=True)

async def main():
    await ask(memory)
    if when == "inside":
        fork()
    if when == "closed":
        await memory.close()
        fork()

asyncio.run(main())
if when == "after":
    fork()
print("parent", answer(memory))
"""


def _run(target: str, when: str) -> list[str]:
    command = [sys.executable, "-c", SCRIPT, target, when]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()


def test_a_child_that_is_forked_between_two_event_loops_connects_anew(threaded: Any) -> None:
    assert _run(threaded(), "after") == ["same ['words'] 0", "new ['words'] 0", "parent ['words']"]


def test_a_child_that_is_forked_beside_an_open_connection_says_so_at_once(threaded: Any) -> None:
    same, new, parent = _run(threaded(), "inside")
    for line in (same, new):
        assert "SourceUnavailable" in line
        assert "this process was forked while its parent had a gRPC connection open" in line
        assert line.endswith(" 0")
    assert parent == "parent ['words']"


def test_a_child_that_is_forked_after_the_close_may_make_another(threaded: Any) -> None:
    same, new, _ = _run(threaded(), "closed")
    assert "is closed" in same
    assert new == "new ['words'] 0"
