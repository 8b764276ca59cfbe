"""What a message says: the intent of a message, and the sentences of it that are worth remembering.

Rules for English and Russian, without a model. A statement is remembered; questions, greetings, thanks and orders to
the assistant are not, because a stored question matches itself better than its answer does.
"""

import re
from collections.abc import Sequence
from enum import StrEnum

from contexture.text.segmentation import split_sentences
from contexture.text.terms import split_words

_INTERROGATIVES = frozenset(
    """what who whom whose which when where why how
    что кто кого кому чей чья чье чьи какой какая какое какие каков когда где куда откуда почему зачем как сколько
    ли""".split()
)
_AUXILIARIES = frozenset(
    """is are was were am do does did can could should would will has have had shall may might must
    isn aren wasn weren don doesn didn couldn shouldn wouldn won hasn haven""".split()
)
_SUBJECTS = frozenset(
    """i we he she they it you my our his her their its the this that these those a an
    я мы он она они вы ты мой моя мое мои наш наша наше наши его ее их этот эта это эти""".split()
)
"""Words that begin a subject: after an interrogative they make a subordinate clause (`When I was young, ...`)."""

_COMMAND_VERBS = frozenset(
    """add answer book calculate call change check compare compute convert count create define delete describe draft
    explain find fix forget generate give help ignore list make open order plan play prepare put recommend remind
    remove rename repeat rewrite run save schedule search send set show sort start stop suggest summarise summarize
    tell translate try turn update use write
    добавь ответь забронируй вычисли позвони измени проверь сравни посчитай переведи создай определи удали опиши
    составь объясни найди исправь забудь сделай дай помоги перечисли посмотри открой закажи запланируй включи выключи
    подготовь поставь посоветуй напомни убери переименуй повтори перепиши запусти сохрани отправь покажи отсортируй
    начни останови предложи резюмируй скажи расскажи подскажи попробуй обнови используй напиши придумай""".split()
)
_NOUN_LIKE_VERBS = frozenset(
    """answer book call change check count draft fix help list order plan play run schedule search set show sort
    start stop try turn update use""".split()
)
"""Command verbs that are nouns too: `Order 5512 has arrived` is a statement."""

_COMMAND_OBJECTS = _SUBJECTS | frozenset("me us him them all every each some any for to about up down out if".split())
_FINITE_VERBS = _AUXILIARIES | frozenset("s re".split())

_KEEP_VERBS = frozenset("remember note keep memorise memorize запомни учти имей запиши заметь".split())
"""Orders to remember something: what follows is a statement."""

_REQUESTS = re.compile(
    r"(?:i (?:wonder|want to know|would like to know|d like to know|need to know|need you to|want you to|was wondering)"
    r"|let s|let us|could you|can you|would you|will you"
    r"|(?:я )?хочу (?:знать|узнать|спросить)|(?:мне )?(?:интересно|нужно узнать)|хотелось бы (?:знать|узнать)"
    r"|(?:ты )?(?:можешь|могла? бы)|давай|не мог(?:ла)? бы)\b"
)
_SMALLTALK_WORDS = frozenset(
    """hi hello hey hiya howdy thanks thank you bye goodbye cheers ok okay good great nice cool morning afternoon
    evening night please sorry yes no sure welcome well very much a lot so there all yep nope yeah perfect awesome
    wonderful excellent lovely fine understood got it that s that helps helped was helpful works see later again
    for your the help is right then
    привет здравствуй здравствуйте спасибо пока до свидания встречи добрый доброе день утро вечер ладно хорошо ок ага
    да нет пожалуйста извини извините большое огромное отлично прекрасно понятно понял поняла ясно супер класс круто
    угу это помогло за помощь тебе вам очень""".split()
)
_POLITE_WORDS = frozenset("please kindly so and ok okay well hey hi пожалуйста ну а и так слушай".split())
_QUESTION_MARK = re.compile(r"[?？][\s\"'»”)]*$")
_FULL_STOP = re.compile(r"[.!…]+[\s\"'»”)]*$")


_ORDER_TO_FORGET = re.compile(
    r"(?:(?:can|could|would|will) you )?(?:please,? |kindly )?(?:forget|delete|erase|remove) "
    r"(?:everything |anything |all )?(?:that )?(?:what )?(?:that )?"
    r"(?:i|we)(?: have|'ve)? (?:ever )?(?:said|told you|mentioned|wrote)(?: to you)? (?:about|of|on) (?P<subject>.+)"
    r"|(?:пожалуйста,? )?(?:забудь|удали|сотри)(?:те)?,? (?:пожалуйста,? )?(?:вс[её],? )?(?:то,? )?"
    r"что (?:я|мы) (?:тебе |вам )?"
    r"(?:говорил\w*|сказал\w*|рассказ\w+|писал\w*|упоминал\w*)(?: тебе| вам)? "
    r"(?:о|об|обо|про|насч[её]т) (?P<russian>.+)",
    re.IGNORECASE,
)


class MessageIntent(StrEnum):
    """What a message wants: an answer, an action, small talk, or to tell something."""

    QUESTION = "question"
    COMMAND = "command"
    SMALLTALK = "smalltalk"
    STATEMENT = "statement"


def detect_intent(text: str) -> MessageIntent:
    """The intent of a message or of one sentence, by its form."""
    words = split_words(text)
    if words and all(word in _SMALLTALK_WORDS for word in words):
        return MessageIntent.SMALLTALK
    spoken = _skip_polite_words(words)
    if _QUESTION_MARK.search(text) or _is_unmarked_question(spoken, text):
        return MessageIntent.QUESTION
    return MessageIntent.COMMAND if _is_command(spoken) else MessageIntent.STATEMENT


def select_statements(message: str) -> str:
    """The sentences of a message that state something, in order; empty when it only asks, greets or orders.

    A message that consists of statements alone is returned as it is. An order to remember something counts as a
    statement; a list or quotation that follows an order does not.
    """
    sentences = [message[start:end] for start, end in split_sentences(message)]
    stated = [sentence for sentence in sentences if _is_worth_keeping(sentence)]
    return message.strip() if len(stated) == len(sentences) else " ".join(stated)


def find_subject_to_forget(message: str) -> str:
    """The subject of an order such as `forget what I said about my car`; empty for any other message."""
    found = _ORDER_TO_FORGET.fullmatch(" ".join(message.split()).rstrip(".!?"))
    return (found["subject"] or found["russian"]).strip() if found else ""


def _is_worth_keeping(sentence: str) -> bool:
    intent = detect_intent(sentence)
    if intent is MessageIntent.COMMAND:
        return _is_order_to_remember(_skip_polite_words(split_words(sentence)))
    return intent is MessageIntent.STATEMENT and bool(split_words(sentence))


def _skip_polite_words(words: Sequence[str]) -> Sequence[str]:
    first = next((at for at, word in enumerate(words) if word not in _POLITE_WORDS), len(words))
    return words[first:]


def _is_unmarked_question(words: Sequence[str], text: str) -> bool:
    """Whether words without a question mark ask: they begin with an interrogative, an auxiliary or a request."""
    if not words:
        return False
    if _REQUESTS.match(" ".join(words[:6])):
        return True
    opening, following = words[0], words[1] if len(words) > 1 else ""
    if opening in _INTERROGATIVES:
        subordinate = following in _SUBJECTS and ("," in text or _FULL_STOP.search(text) is not None)
        return not subordinate
    return opening in _AUXILIARIES and following in _SUBJECTS | {"there", "any", "anyone", "someone", "n", "t"}


def _is_command(words: Sequence[str]) -> bool:
    if not words:
        return False
    opening, rest = words[0], words[1:]
    if opening in _KEEP_VERBS:
        return True
    if opening not in _COMMAND_VERBS:
        return False
    if opening not in _NOUN_LIKE_VERBS or not rest or rest[0] in _COMMAND_OBJECTS:
        return True
    return not any(word in _FINITE_VERBS for word in rest)


def _is_order_to_remember(words: Sequence[str]) -> bool:
    return bool(words) and words[0] in _KEEP_VERBS and len(words) > 2  # noqa: PLR2004 - `remember this` says nothing
