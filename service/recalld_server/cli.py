"""The entry point `recalld`. It needs nothing but the client, so that it can say what else there is to install."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from recalld.errors import MissingExtra
from recalld_server.extras import needing


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; gives the exit code: 0, 1 for a failure, 2 for a wrong call, setting or installation."""
    try:
        with needing("server", "the command line"):
            from recalld_server.commands import run_command

            return run_command(argv)
    except MissingExtra as error:
        print(f"recalld: error: {error}", file=sys.stderr)  # noqa: T201 - this is the command line
        return 2
