"""Reading what a directory in the Hugging Face layout says about its embedding model."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, cast

from recalld.errors import RecalldError
from recalld_server.adapters.onnx.config import Pooling

BUNDLED = "all-MiniLM-L6-v2"
MODEL_FILES = ("model.onnx", "onnx/model.onnx")
#: Weights that a large export keeps beside its model file.
EXTERNAL_DATA = ("_data", ".data")

# Hugging Face writes 1e30 for "no limit"; no text is longer than this.
_NO_LIMIT = 1 << 20
_FALLBACK_TOKENS = 512


class BrokenModel(RecalldError, ValueError):
    """A model directory cannot be used; the message names the file and says why, in one line."""


@dataclass(frozen=True, slots=True)
class ModelLayout:
    """What a model directory says of itself.

    external_data: weights beside the model file. pooling: None when it does not say. max_tokens: special tokens
    included. max_positions: the longest input that the network has positions for, None when it does not say. pad_id:
    None when `config.json` does not say. own_layers: names of layers after pooling that the ONNX file may or may not
    hold.
    """

    name: str
    model_file: Path
    external_data: tuple[Path, ...]
    tokenizer_file: Path
    pooling: Pooling | None
    max_tokens: int
    max_positions: int | None
    pad_id: int | None
    query_prefix: str
    document_prefix: str
    own_layers: tuple[str, ...]


def bundled_model_path() -> Path:
    """The directory of the model that comes with the package."""
    return Path(str(resources.files("recalld_server.models") / BUNDLED))


def read_layout(directory: Path) -> ModelLayout:
    """Reads the configuration files of `directory`. Raises BrokenModel."""
    directory = directory.expanduser().resolve()
    if not directory.is_dir():
        raise BrokenModel(f"{directory}: no such model directory")
    model_file = next((directory / name for name in MODEL_FILES if (directory / name).is_file()), None)
    if model_file is None:
        raise BrokenModel(f"{directory}: has neither {' nor '.join(MODEL_FILES)}")
    beside = (model_file.with_name(model_file.name + suffix) for suffix in EXTERNAL_DATA)
    tokenizer_file = directory / "tokenizer.json"
    if not tokenizer_file.is_file():
        raise BrokenModel(f"{tokenizer_file}: no such file")
    network = _read(directory / "config.json")
    positions = _count(network, "max_position_embeddings", directory / "config.json")
    query_prefix, document_prefix = _prefixes(directory / "config_sentence_transformers.json")
    return ModelLayout(
        name=directory.name,
        model_file=model_file,
        external_data=tuple(path for path in beside if path.is_file()),
        tokenizer_file=tokenizer_file,
        pooling=_pooling(directory / "1_Pooling" / "config.json"),
        max_tokens=_max_tokens(directory, positions),
        max_positions=positions,
        pad_id=network["pad_token_id"] if isinstance(network.get("pad_token_id"), int) else None,
        query_prefix=query_prefix,
        document_prefix=document_prefix,
        own_layers=_own_layers(directory / "modules.json"),
    )


def digest_files(*paths: Path) -> str:
    """SHA-256, lower-case hex, of the files' bytes one after another."""
    total = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                total.update(block)
    return total.hexdigest()


def _max_tokens(directory: Path, positions: int | None) -> int:
    """The length the model was trained for comes first: `sentence_bert_config.json` says 256 where the tokenizer of
    the same model says 512."""
    trained, tokenizer = directory / "sentence_bert_config.json", directory / "tokenizer_config.json"
    stated = _count(_read(trained), "max_seq_length", trained) or _count(
        _read(tokenizer), "model_max_length", tokenizer
    )
    return min(stated or _FALLBACK_TOKENS, positions or _NO_LIMIT)


def _pooling(path: Path) -> Pooling | None:
    settings = _read(path)
    if not settings:
        return None
    chosen = [name.removeprefix("pooling_mode_") for name, on in settings.items() if on is True and "_mode_" in name]
    match chosen or [settings.get("pooling_mode")]:
        case ["mean_tokens"] | ["mean"]:
            return "mean"
        case ["cls_token"] | ["cls"]:
            return "cls"
        case other:
            raise BrokenModel(f"{path}: pooling must be mean or cls, not {' and '.join(map(str, other))}")


def _prefixes(path: Path) -> tuple[str, str]:
    """Query and document prefix, from the names that published models give their prompts."""
    prompts = _read(path).get("prompts")
    named = cast("dict[str, Any]", prompts) if isinstance(prompts, dict) else {}
    document = named.get("document") or named.get("passage")
    return str(named.get("query") or ""), str(document or "")


def _own_layers(path: Path) -> tuple[str, ...]:
    if not path.is_file():
        return ()
    modules = _parse(path)
    kinds = [str(module.get("type", "")) for module in cast("list[Any]", modules) if isinstance(module, dict)]  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    return tuple(
        kind.rpartition(".")[2] for kind in kinds if not kind.endswith((".Transformer", ".Pooling", ".Normalize"))
    )


def _count(settings: dict[str, Any], key: str, path: Path) -> int | None:
    value = settings.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 1:
        raise BrokenModel(f"{path}: {key} must be a positive number, not {value!r}")
    return int(min(value, _NO_LIMIT))


def _read(path: Path) -> dict[str, Any]:
    """The object in `path`, empty when there is no such file."""
    if not path.is_file():
        return {}
    settings = _parse(path)
    if not isinstance(settings, dict):
        raise BrokenModel(f"{path}: is not a JSON object")
    return cast("dict[str, Any]", settings)


def _parse(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BrokenModel(f"{path}: is not readable JSON") from error
