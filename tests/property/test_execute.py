"""Whatever is typed, a command is answered with evidence or refused in our own words."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from contexture.errors import RequestError
from contexture.service.envelope import encode_json
from contexture.testing.doubles import NOON
from support.news_engine import news_engine

HEADS = ("/ask", "/events", "/graph query", "/synthesize", "/memory store", "/memory recall", "/memory suggest", "/aks")
WORDS = (
    "Maria Tamm",
    "порт",
    "12 ships",
    "window=3d",
    "1y",
    "lang=ru",
    "k=99",
    "hops=7",
    "query=",
    '"',
    "vs",
    "?",
    "и где",
)
lines = st.builds(
    lambda head, words: " ".join((head, *words)),
    st.sampled_from(HEADS),
    st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=12)), max_size=6),
)


@settings(max_examples=25)
@given(typed=st.lists(lines, min_size=12, max_size=12))
def test_any_line_is_answered_or_refused(typed, lasting_folder):
    """Statements have evidence that is listed, errors are the caller's, and every answer can be sent."""

    async def check() -> None:
        async with news_engine(lasting_folder()) as engine:
            for line in typed:
                try:
                    answer = await engine.execute.run({"raw_command": line}, scope=engine.scope, now=NOON)
                except RequestError:
                    continue
                listed = {each.number for each in answer.evidence}
                assert all(each.evidence and listed.issuperset(each.evidence) for each in answer.statements)
                assert encode_json(answer.to_dict())

    asyncio.run(check())
