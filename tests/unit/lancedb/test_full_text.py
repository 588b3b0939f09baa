"""Words are found in every script; what they stand for in a query is decided in `recalld.engine.analysis`."""
# ruff: noqa: RUF001 - letters that look like others are the point

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recalld.item import MemoryItem
from recalld.scope import Scope

DOCUMENTS = {
    "chinese": "我昨天在北京大学参加了一个会议",
    "chinese tea": "他每天早上都喜欢喝绿茶",
    "chinese trad": "我們在臺北吃了牛肉麵",
    "japanese": "東京都に住んでいます。寿司が好きです",
    "japanese coffee": "カフェでコーヒーを飲みました",
    "korean": "서울에서 친구와 김치찌개를 먹었습니다",
    "korean study": "한국어를 공부합니다",
    "thai": "ฉันชอบกินข้าวผัดที่กรุงเทพ",
    "arabic": "الكتاب على الطاولة في المكتبة",
    "arabic vowels": "ذَهَبَ الوَلَدُ إِلَى المَدْرَسَةِ",
    "hebrew": "שלום עולם",
    "hindi": "मुझे चाय पसंद है",
    "russian": "Кошка сидит на окне и смотрит на птиц",
    "greek": "Η γάτα κοιμάται στον καναπέ",
    "french": "Le café crème est servi à la maison",
    "german": "Die Straße ist für Fußgänger gesperrt",
    "turkish": "İstanbul güzel bir şehir",
    "vietnamese": "Tôi thích ăn phở bò",
    "party": "the party was great 🎉 indeed",
    "pizza": "I ❤️ pizza 🍕 on Fridays",
    "error": "The deployment failed with ERR-4271-XK in production",
    "error near": "The deployment failed with ERR-4272-XK in staging",
    "column": "the column user_id is missing from the export",
    "mail": "write to bob.smith@example.com about it",
    "version": "upgrade to v1.2.3-beta before Friday",
    "path": "the file /etc/nginx/nginx.conf changed",
    "long": f"the token {'ab12' * 30} was revoked",
    "camel": "call getUserName before rendering",
    "languages": "uses C++ and C# daily",
    "band": "The Who played a concert",
    "running": "she was running along the river",
    "wide": "ＡＢＣ１２３ の部品",
}

#: For each document, queries that have to find it first.
QUERIES = {
    "chinese": ["北京", "大学", "会议", "京大"],
    "chinese tea": ["绿茶"],
    "chinese trad": ["牛肉麵"],
    "japanese": ["東京", "寿司"],
    "japanese coffee": ["コーヒー", "ｺｰﾋｰ"],
    "korean": ["서울", "김치", "친구"],
    "korean study": ["한국어"],
    "thai": ["ข้าวผัด", "กรุงเทพ"],
    "arabic": ["الكتاب", "كتاب"],
    "arabic vowels": ["المدرسة"],
    "hebrew": ["שלום"],
    "hindi": ["चाय"],
    "russian": ["кошка", "ПТИЦ"],
    "greek": ["γάτα"],
    "french": ["cafe", "CRÈME", "cre\u0300me"],
    "german": ["strasse", "Straße", "STRASSE"],
    "turkish": ["istanbul", "İSTANBUL"],
    "vietnamese": ["phở", "pho"],
    "party": ["🎉"],
    "pizza": ["🍕", "❤️", "❤"],
    "error": ["ERR-4271-XK", "what is err-4271-xk?", "4271"],
    "error near": ["ERR-4272-XK"],
    "column": ["user_id", "user id export"],
    "mail": ["bob.smith@example.com", "bob"],
    "version": ["v1.2.3-beta", "1.2.3-beta"],
    "path": ["nginx.conf", "/etc/nginx/nginx.conf"],
    "long": ["ab12" * 30],
    "camel": ["getUserName", "get user name"],
    "languages": ["C++", "c#"],
    "band": ["The Who"],
    "running": ["runs"],
    "wide": ["ABC123"],
}


@pytest.fixture
async def library(opened: Callable[..., Any], note: Callable[..., MemoryItem], scope: Scope) -> Any:
    store = await opened()
    documents = [note(id, content) for id, content in DOCUMENTS.items()]
    await store.put(scope, *documents[:20])
    # A second commit stays outside the index: both sides have to find alike.
    await store.put(scope, *documents[20:])
    return store


async def test_a_document_is_found_by_its_words_in_any_script(library: Any, scope: Scope) -> None:
    missed = {}
    for wanted, query in ((wanted, query) for wanted, queries in QUERIES.items() for query in queries):
        found = await library.by_words(scope, query, limit=3)
        if found[:1] != [wanted]:
            missed[query] = (wanted, found)
    assert missed == {}


async def test_a_question_is_not_ranked_by_its_small_words(library: Any, scope: Scope) -> None:
    assert await library.by_words(scope, "What is it that was in the export?") == ["column"]


@pytest.mark.parametrize(
    "query", ["", " ", "\x00", "?!", "'; drop table x --", "a AND (b OR", '"', "*", "word " * 1600]
)
async def test_a_query_has_no_syntax(library: Any, scope: Scope, query: str) -> None:
    assert len(await library.by_words(scope, query)) <= 5
