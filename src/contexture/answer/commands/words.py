"""Headings and the few sentences of our own, in the languages that can be asked for."""

from __future__ import annotations

from collections.abc import Mapping

HEADINGS: Mapping[str, Mapping[str, str]] = {
    "en": {
        "answer": "Answer",
        "timeline": "Timeline",
        "links": "Links between events",
        "paths": "Paths",
        "relations": "Relations",
        "agreements": "Where the sources agree",
        "conflicts": "Where the sources differ",
        "single": "Said by one source only",
        "stored": "Stored",
        "recalled": "Recalled",
        "suggested": "Worth remembering",
    },
    "ru": {
        "answer": "Ответ",
        "timeline": "Хронология",
        "links": "Связи между событиями",
        "paths": "Цепочки связей",
        "relations": "Связи",
        "agreements": "В чём источники сходятся",
        "conflicts": "В чём источники расходятся",
        "single": "Сообщает только один источник",
        "stored": "Сохранено",
        "recalled": "Найдено в памяти",
        "suggested": "Стоит запомнить",
    },
}

_SAID: Mapping[str, Mapping[str, str]] = {
    "en": {
        "quoted": "Sentences are quoted in the language of their source: {langs}.",
        "nothing": "Nothing was found that answers this.",
        "uncovered": "No source found answers: {part}",
        "same_actor": "{first} → {second}: both involve {via}",
        "same_place": "{first} → {second}: both happened in {via}",
        "consecutive": "{first} → {second}: one followed the other, and both speak of {via}",
        "unknown_entity": "No entity of the question was found in the articles; the strongest relations are shown.",
        "no_entity": "No entity of the question was found in the articles, and nothing that ties others.",
        "no_path": "No path of at most {hops} steps joins what was asked about.",
        "no_model": "No model was used: the statements are sentences of the sources.",
        "stored": "“{key}” is remembered for {days} days",
        "known": "Already remembered: {key}",
        "together": "mentioned together",
    },
    "ru": {
        "quoted": "Предложения приведены на языке источника: {langs}.",
        "nothing": "Ничего, что отвечало бы на это, не нашлось.",
        "uncovered": "Ни один найденный источник не отвечает на вопрос: {part}",
        "same_actor": "{first} → {second}: в обоих участвует {via}",
        "same_place": "{first} → {second}: оба произошли в одном месте ({via})",
        "consecutive": "{first} → {second}: одно последовало за другим, в обоих речь о {via}",
        "unknown_entity": "Ни одно имя из вопроса в статьях не нашлось; показаны самые прочные связи.",
        "no_entity": "Ни одно имя из вопроса в статьях не нашлось, и связей между другими именами нет.",
        "no_path": "Цепочки не длиннее {hops} шагов между названным в вопросе нет.",
        "no_model": "Модель не использовалась: утверждения — предложения самих источников.",
        "stored": "«{key}» сохранено на {days} дней",
        "known": "Уже в памяти: {key}",
        "together": "упомянуты вместе",
    },
}


def heading(name: str, lang: str) -> str:
    """The heading of a section."""
    return HEADINGS.get(lang, HEADINGS["en"])[name]


def said(name: str, lang: str, values: Mapping[str, object] | None = None) -> str:
    """One of our sentences, filled in."""
    return _SAID.get(lang, _SAID["en"])[name].format_map(values or {})
