"""The commands: `recalld serve`, `demo`, `health` and `models pull`."""

from __future__ import annotations

import argparse
import os
import sys
import types
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from recalld._version import __version__
from recalld.errors import MissingExtra, RecalldError
from recalld_server.settings import ENV_PREFIX, Settings, SettingsError, flag_of, load_settings

#: The settings that only the file can hold, since they are tables.
_FILE_ONLY = frozenset({"sources"})


def run_command(argv: Sequence[str] | None = None) -> int:
    """Runs one command; gives the exit code: 0, 1 for a failure, 2 for a wrong call or setting. Raises MissingExtra."""
    arguments = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except SettingsError as error:
        return _fail(error, 2)
    except MissingExtra:
        raise
    except RecalldError as error:
        return _fail(error, 1)


def _fail(error: RecalldError, code: int) -> int:
    print(f"recalld: error: {error}", file=sys.stderr)  # noqa: T201 - this is the command line
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="recalld", description="The memory of AI agents as a service.")
    parser.add_argument("--version", action="version", version=f"recalld {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    serve = commands.add_parser(
        "serve",
        help="run the server",
        description="Runs the server. Prints `recalld ready on HOST:PORT` when it answers; logs go to stderr.",
        epilog=f"Every setting can also come from an environment variable ({ENV_PREFIX}LISTEN) or the TOML file"
        " (listen = ...). Flags come first, then the environment, then the file. Further sources are [[sources]] tables"
        " of the file.",
    )
    serve.add_argument("--config", metavar="FILE", type=Path, help=f"a TOML file of settings ({ENV_PREFIX}CONFIG)")
    for name, field in Settings.model_fields.items():
        if name not in _FILE_ONLY:
            _add_flag(serve, name, field)
    serve.set_defaults(run=_serve)
    commands.add_parser("demo", help="write sample memories, ask a few questions, stop").set_defaults(run=_demo)
    health = commands.add_parser("health", help="ask a server whether it serves; exit code 0 if so")
    health.add_argument(
        "--target", default="127.0.0.1:50051", metavar="HOST:PORT", help="the server (default: 127.0.0.1:50051)"
    )
    health.add_argument("--timeout", default=3.0, type=float, metavar="SECONDS", help="how long to wait (default: 3)")
    health.add_argument("--tls-ca", type=Path, metavar="PATH", help="PEM certificates to trust; asks over TLS")
    health.set_defaults(run=_health)
    models = commands.add_parser("models", help="embedding models").add_subparsers(required=True, metavar="COMMAND")
    pull = models.add_parser("pull", help="fetch a model from the Hugging Face hub")
    pull.add_argument("name", metavar="NAME", help="for example sentence-transformers/all-MiniLM-L6-v2")
    pull.add_argument("--to", metavar="DIR", type=Path, help="the folder to put it in (default: ./models/NAME)")
    pull.set_defaults(run=_pull)
    return parser


def _add_flag(parser: argparse.ArgumentParser, name: str, field: FieldInfo) -> None:
    flag = flag_of(name)
    default = "" if field.default is None or field.default == "" else f" (default: {field.default})"
    # argparse reads % as the start of a format.
    text = f"{field.description}{default}".replace("%", "%%")
    if field.annotation is bool:
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text)
        return
    parser.add_argument(flag, metavar=_metavar(field.annotation), default=argparse.SUPPRESS, help=text)


def _metavar(annotation: Any) -> str:
    """How a value of the setting is written: its choices, or the kind of its value."""
    if typing.get_origin(annotation) is typing.Literal:
        return "{" + ",".join(typing.get_args(annotation)) + "}"
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return _metavar(typing.get_args(annotation)[0])
    return {int: "N", float: "X", str: "TEXT", Path: "PATH"}[annotation]


def _serve(arguments: argparse.Namespace) -> int:
    flags = {name: value for name, value in vars(arguments).items() if name in Settings.model_fields}
    config = arguments.config or (Path(path) if (path := os.environ.get(ENV_PREFIX + "CONFIG")) else None)
    settings = load_settings(flags, config)
    # Imported late: a wrong setting is told at once, and `--help` needs neither LanceDB nor the model's runtime.
    from recalld_server.wiring import run_server

    run_server(settings)
    return 0


def _demo(_: argparse.Namespace) -> int:
    from recalld_server.demo import run_demo

    run_demo()
    return 0


def _health(arguments: argparse.Namespace) -> int:
    from recalld_server.health import check_health

    check_health(arguments.target, arguments.timeout, arguments.tls_ca)
    print(f"{arguments.target} serves")  # noqa: T201 - this is the command line
    return 0


def _pull(arguments: argparse.Namespace) -> int:
    from recalld_server.adapters.onnx.pull import pull_model

    target = arguments.to or Path("models") / arguments.name
    pull_model(arguments.name, target)
    print(f"{target}\nserve it with: recalld serve --model {target}")  # noqa: T201 - this is the command line
    return 0
