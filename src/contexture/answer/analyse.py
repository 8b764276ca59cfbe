"""What a message is, told by its form alone: its language, what it wants, and its subject."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from contexture.text.language import UNKNOWN, detect
from contexture.text.terms import term_id, words

_KEYWORDS = 8
_LANGUAGES = {
    "ru": "Russian", "uk": "Ukrainian", "de": "German", "fr": "French", "es": "Spanish", "it": "Italian",
    "pt": "Portuguese", "nl": "Dutch", "zh": "Chinese", "ja": "Japanese", "ko": "Korean", "ar": "Arabic",
    "th": "Thai", "el": "Greek", "he": "Hebrew",
}  # fmt: skip
_ASKING = frozenset(
    """what who whom whose which when where why how is are was were do does did can could should would will has have
    что кто кого кому чей какой какая какое какие когда где куда откуда почему зачем как сколько ли""".split()
)
_ORDERING = frozenset(
    """add book call change check compare compute count create delete describe draft explain find fix generate give
    help list make open order plan prepare remember remind remove rename rewrite run schedule search send set show
    start stop summarise summarize tell translate turn update write
    добавь забронируй позвони измени проверь сравни посчитай создай удали опиши объясни найди исправь сделай дай
    помоги перечисли открой закажи запланируй подготовь запомни напомни переименуй перепиши запусти отправь покажи
    начни останови резюмируй скажи расскажи переведи обнови напиши""".split()
)
_SMALLTALK = frozenset(
    """hi hello hey hiya howdy thanks thank you bye goodbye cheers ok okay good great nice cool morning afternoon
    evening night please sorry yes no sure welcome well very much a lot so there all
    привет здравствуй здравствуйте спасибо пока до свидания добрый день доброе утро вечер ладно хорошо ок ага да нет
    пожалуйста извини извините большое""".split()
)
_POLITE = frozenset("please kindly пожалуйста".split())
_QUESTION_MARK = re.compile(r"[?？][\s\"'»”)]*$")


class Intent(StrEnum):
    """What a message wants."""

    QUESTION = "question"
    COMMAND = "command"
    SMALLTALK = "smalltalk"
    STATEMENT = "statement"


@dataclass(frozen=True, kw_only=True, slots=True)
class Analysis:
    """What can be told of a message without a model; `keywords` are its words but the empty ones, in order."""

    lang: str
    intent: Intent
    keywords: tuple[str, ...]


def analyse(message: str) -> Analysis:
    """The analysis of a message; equal messages have equal ones."""
    found = words(message)
    subject = [word for word in found if term_id(word) is not None]
    return Analysis(
        lang=detect(message), intent=_intent(message, found), keywords=tuple(dict.fromkeys(subject))[:_KEYWORDS]
    )


def system_prompt(base: str, lang: str) -> str:
    """The system prompt of a session in this language.

    It depends on the session and not on the message, so that every turn of a session begins with the same bytes.
    """
    language = _LANGUAGES.get(lang)
    return f"{base}\nAnswer in {language} unless you are asked for another language." if language else base


def session_language(earlier: str, analysis: Analysis) -> str:
    """The language a session began in; `earlier` is what its last turn said, empty for the first."""
    return earlier if earlier not in ("", UNKNOWN) else analysis.lang


def _intent(message: str, found: list[str]) -> Intent:
    opening = next((word for word in found if word not in _POLITE), "")
    if found and all(word in _SMALLTALK for word in found):
        return Intent.SMALLTALK
    if _QUESTION_MARK.search(message) or opening in _ASKING:
        return Intent.QUESTION
    return Intent.COMMAND if opening in _ORDERING else Intent.STATEMENT
