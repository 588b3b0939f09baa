"""Fetching a model from the Hugging Face hub."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

from recalld.errors import InvalidField, RecalldError, SourceUnavailable
from recalld_server.adapters.onnx.layout import EXTERNAL_DATA, MODEL_FILES, read_layout
from recalld_server.extras import needing

#: What `read_layout` and the runtime read, and what the licence asks to keep. Quantised and optimised variants stay.
_NEEDED = (
    *MODEL_FILES,
    *(name + suffix for name in MODEL_FILES for suffix in EXTERNAL_DATA),
    "tokenizer.json",
    "tokenizer_config.json",
    "config.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "modules.json",
    "1_Pooling/config.json",
    "LICENSE*",
    "NOTICE*",
    "README.md",
)


def pull_model(name: str, directory: Path) -> None:
    """Fetches model `name` (`owner/model`) into `directory`, which is then ready for EmbedderConfig.

    Blocks, over the network. Raises SourceUnavailable when the hub cannot be reached, InvalidField when it has no such
    model to give, BrokenModel when what it has is not an ONNX embedding model, MissingExtra without `recalld[models]`.
    """
    with needing("models", "fetching a model"):
        import huggingface_hub
        from huggingface_hub import errors as hub_errors
    hub: Any = cast("Any", huggingface_hub)
    errors: Any = cast("Any", hub_errors)
    if name.count("/") != 1 or not all(name.split("/")) or ".." in name:
        raise InvalidField(violations={"name": f"must be owner/model, not {name!r}"})
    try:
        # The environment is read at each call, not when the hub's client was first imported.
        endpoint = os.environ.get("HF_ENDPOINT")
        # Asked first: the download takes a folder that is there already for the model when the hub does not answer.
        revision: str = hub.HfApi(endpoint=endpoint).model_info(name, revision="main").sha
        hub.snapshot_download(
            name, revision=revision, local_dir=directory, allow_patterns=list(_NEEDED), endpoint=endpoint
        )
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        raise InvalidField(violations={"name": f"the model hub has no model {name!r} for you"}) from None
    # HTTPError is the client library's: a connection that breaks half-way raises it bare.
    except (errors.HTTPError, errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled):
        # Their messages name hosts and suggest settings that are not ours.
        raise SourceUnavailable(
            f"cannot reach the model hub to fetch {name!r}: copy the model's directory here and set its path instead"
        ) from None
    except OSError as error:
        raise RecalldError(f"cannot write {directory}: {error.strerror}") from error
    read_layout(directory)
