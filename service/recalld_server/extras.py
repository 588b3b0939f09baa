"""What is said where a part of recalld is used that was not installed."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from recalld.errors import MissingExtra


@contextmanager
def needing(extra: str, what: str) -> Generator[None]:
    """Around imports of the packages of an extra. Raises MissingExtra, one line, where one is not installed.

    what: what needs them, for the message.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "recalld", "recalld_server"):  # a defect of ours
            raise
        raise MissingExtra(f'{what} needs {package}, which is not installed: pip install "recalld[{extra}]"') from None
