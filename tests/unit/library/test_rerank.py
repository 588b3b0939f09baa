"""CrossEncoderReranker on tiny models, made here, that count the words which query and item share."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import threading
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from recalld import CompositeMemory, Ctx, MemoryItem, RecalldError, Reranker
from recalld.rerank import CrossEncoderReranker
from recalld.testing import ListMemory

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "coffee", "tea", "hot", "cold", "cup"]
INPUTS = ["input_ids", "attention_mask", "token_type_ids"]


def write_tokenizer(path: Path, *, fixed_padding: bool = False) -> None:
    tokenizer = Tokenizer(WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))  # noqa: S106
    tokenizer.pre_tokenizer = Whitespace()  # type: ignore[assignment]
    tokenizer.post_processor = TemplateProcessing(  # type: ignore[assignment]
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    if fixed_padding:  # as published files have it
        tokenizer.enable_padding(length=300, pad_id=0, pad_token="[PAD]")  # noqa: S106
        tokenizer.enable_truncation(300)
    tokenizer.save(str(path / "tokenizer.json"))


def write_model(file: Path, *, outputs: int = 1, inputs: list[str] = INPUTS, scale: float = 1.0) -> None:
    """logit = scale * (how many pairs of a query token and an item token are equal - 2); [SEP] always is one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    names = iter(range(100))
    nodes: list[Any] = []

    def op(kind: str, *of: str, **attributes: Any) -> str:
        name = f"v{next(names)}"
        nodes.append(helper.make_node(kind, list(of), [name], **attributes))
        return name

    def number(value: Any, kind: int = TensorProto.FLOAT) -> str:
        values = value if isinstance(value, list) else [value]
        shape = [len(values)] if isinstance(value, list) else []
        return op("Constant", value=helper.make_tensor("c", kind, shape, values))

    if "token_type_ids" in inputs:
        kinds = op("Cast", "token_type_ids", to=TensorProto.FLOAT)
        first = op("Mul", op("Sub", number(1.0), kinds), op("Cast", "attention_mask", to=TensorProto.FLOAT))
        rows = op("Unsqueeze", "input_ids", number([2], TensorProto.INT64))
        columns = op("Unsqueeze", "input_ids", number([1], TensorProto.INT64))
        equal = op("Cast", op("Equal", rows, columns), to=TensorProto.FLOAT)
        across = op(
            "Mul",
            op("Unsqueeze", first, number([2], TensorProto.INT64)),
            op("Unsqueeze", kinds, number([1], TensorProto.INT64)),
        )
        shared = op("ReduceSum", op("Mul", equal, across), number([1, 2], TensorProto.INT64), keepdims=0)
    else:  # a model that knows no segments: the length of the pair
        mask = op("Cast", "attention_mask", to=TensorProto.FLOAT)
        shared = op("ReduceSum", mask, number([1], TensorProto.INT64), keepdims=0)
    logit = op("Mul", op("Sub", shared, number(2.0)), number(scale))
    column = op("Unsqueeze", logit, number([1], TensorProto.INT64))
    if outputs > 1:
        half = op("Mul", column, number(0.5))
        column = op("Concat", op("Neg", half), *([half] * (outputs - 1)), axis=1)
    nodes.append(helper.make_node("Identity", [column], ["logits"]))
    graph = helper.make_graph(
        nodes,
        "overlap",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in inputs],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", outputs])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, str(file))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_tokenizer(tmp_path)
    write_model(tmp_path / "model.onnx")
    return tmp_path


def items(*contents: str) -> list[MemoryItem]:
    return [MemoryItem(content, "s", 0.1, {"a": 1}, id=content) for content in contents]


async def ranked(reranker: Reranker, query: str, *contents: str, k: int = 9) -> list[tuple[str, float | None]]:
    return [(item.content, item.score) for item in await reranker(query, items(*contents), k=k)]


def sigmoid(logit: float) -> Any:
    return pytest.approx(1 / (1 + math.exp(-logit)), rel=1e-5)


async def test_reads_query_and_item_together(path: Path):
    reranker = CrossEncoderReranker(path)
    assert await ranked(reranker, "hot coffee", "cold tea", "hot coffee", "coffee") == [
        ("hot coffee", sigmoid(1)), ("coffee", sigmoid(0)), ("cold tea", sigmoid(-1)),
    ]  # fmt: skip
    assert [content for content, _ in await ranked(reranker, "cold tea", "hot coffee", "cold tea")] == [
        "cold tea",
        "hot coffee",
    ]


async def test_everything_but_the_score_stays(path: Path):
    (found,) = await CrossEncoderReranker(path)("tea", items("tea"), k=1)
    assert (found.source, found.metadata, found.id) == ("s", {"a": 1}, "tea")


async def test_equal_scores_keep_the_order_and_k_is_kept(path: Path):
    reranker = CrossEncoderReranker(path)
    assert [c for c, _ in await ranked(reranker, "hot", "tea", "cup", "hot", "coffee", k=3)] == ["hot", "tea", "cup"]


@pytest.mark.parametrize("batch_size", [1, 2, 64])
async def test_an_item_scores_alike_in_every_batch(path: Path, batch_size: int):
    texts = ["hot " * 40, "tea", "hot coffee cup", "cold", "hot"]
    expected = await ranked(CrossEncoderReranker(path, batch_size=1), "hot coffee", *texts)
    assert await ranked(CrossEncoderReranker(path, batch_size=batch_size), "hot coffee", *texts) == expected


async def test_two_outputs_are_read_as_not_relevant_and_relevant(path: Path):
    write_model(path / "model.onnx", outputs=2)
    assert await ranked(CrossEncoderReranker(path), "hot coffee", "hot coffee") == [("hot coffee", sigmoid(1))]


async def test_logits_that_saturate_are_still_told_apart(path: Path):
    write_model(path / "model.onnx", scale=1000.0)
    found = await ranked(CrossEncoderReranker(path), "hot coffee cup", "hot coffee", "hot coffee cup", "tea")
    assert found == [("hot coffee cup", 1.0), ("hot coffee", 1.0), ("tea", 0.0)]


async def test_the_model_may_lie_in_a_folder_of_its_own_and_know_no_segments(tmp_path: Path):
    write_tokenizer(tmp_path)
    write_model(tmp_path / "onnx" / "model.onnx", inputs=INPUTS[:2])
    found = await ranked(CrossEncoderReranker(tmp_path), "hot", "tea", "tea cup")
    assert [content for content, _ in found] == ["tea cup", "tea"]


async def test_the_padding_and_truncation_of_the_file_do_not_decide(path: Path):
    # Without segments the score is the length of the pair, so padding that counted would show.
    write_tokenizer(path, fixed_padding=True)
    write_model(path / "model.onnx", inputs=INPUTS[:2], scale=0.01)
    long, short = await ranked(CrossEncoderReranker(path), "hot", "tea", "tea " * 400)
    assert (long[1], short[1]) == (sigmoid(0.01 * (404 - 2)), sigmoid(0.01 * (5 - 2)))


@pytest.mark.parametrize(
    ("tokenizer_config", "config", "given", "expected"),
    [
        (None, None, None, 512),
        ({"model_max_length": 16}, None, None, 16),
        ({"model_max_length": 1000000000000000019884624838656}, {"max_position_embeddings": 20}, None, 20),
        ({"model_max_length": 16}, {"max_position_embeddings": 20}, None, 16),
        ({"model_max_length": 16}, None, 8, 8),
    ],
)
async def test_pairs_are_cut_to_what_the_model_reads(
    path: Path, tokenizer_config: Any, config: Any, given: int | None, expected: int
):
    for name, content in (("tokenizer_config.json", tokenizer_config), ("config.json", config)):
        if content is not None:
            (path / name).write_text(json.dumps(content))
    write_model(path / "model.onnx", inputs=INPUTS[:2], scale=0.01)
    (found,) = await ranked(CrossEncoderReranker(path, max_length=given), "hot", "tea " * 999)
    assert found[1] == sigmoid(0.01 * (expected - 2))


async def test_nothing_is_loaded_for_nothing(tmp_path: Path):
    (tmp_path / "tokenizer.json").write_text("not a tokenizer")
    (tmp_path / "model.onnx").write_text("not a model")
    reranker = CrossEncoderReranker(tmp_path)
    assert await reranker("q", [], k=3) == []
    assert await reranker("q", items("a"), k=0) == []


async def test_the_event_loop_stays_free(path: Path, monkeypatch: pytest.MonkeyPatch):
    threads: list[int] = []
    reranker = CrossEncoderReranker(path)
    real = reranker._logits  # type: ignore[attr-defined]

    def recording(query: str, texts: list[str]) -> list[float]:
        threads.append(threading.get_ident())
        return real(query, texts)

    monkeypatch.setattr(reranker, "_logits", recording)
    answers = await asyncio.gather(*(ranked(reranker, "tea", "tea", "hot") for _ in range(4)))
    assert all(answer == answers[0] for answer in answers)
    assert threading.get_ident() not in threads


async def test_serves_a_composite(path: Path, ctx: Ctx):
    members = [ListMemory(items("cold tea"), "a"), ListMemory(items("hot coffee"), "b")]
    composite = CompositeMemory(list(members), reranker=CrossEncoderReranker(path))
    assert [item.content for item in await composite.query("hot", k=1, ctx=ctx)] == ["hot coffee"]


class TestRefusals:
    @pytest.mark.parametrize("missing", ["model.onnx", "tokenizer.json"])
    def test_a_missing_file_is_named(self, path: Path, missing: str):
        (path / missing).unlink()
        with pytest.raises(ValueError, match=missing) as raised:
            CrossEncoderReranker(path)
        assert isinstance(raised.value, RecalldError)

    def test_a_batch_of_nothing(self, path: Path):
        with pytest.raises(ValueError, match="batch_size"):
            CrossEncoderReranker(path, batch_size=0)

    def test_a_config_that_is_no_json(self, path: Path):
        (path / "config.json").write_text("{")
        with pytest.raises(ValueError, match=r"config\.json"):
            CrossEncoderReranker(path)

    async def test_a_model_with_other_outputs(self, path: Path):
        write_model(path / "model.onnx", outputs=3)
        with pytest.raises(ValueError, match="has 3"):
            await ranked(CrossEncoderReranker(path), "q", "tea")

    async def test_a_missing_package_names_the_extra(self, path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setitem(sys.modules, "tokenizers", None)
        with pytest.raises(ImportError, match=r"recalld\[rerank\]") as raised:
            await ranked(CrossEncoderReranker(path), "q", "tea")
        assert isinstance(raised.value, RecalldError)
