"""What a question asks for, by its form: everything about the user, or how something was before."""

import re
from collections.abc import Iterable, Sequence

from contexture.text.language import detect_language
from contexture.text.terms import extract_terms, split_words, stem

_ABOUT_SELF = re.compile(
    r"\b(?:(?:know|remember|told you|learned|learnt) (?:about|of) (?:me|myself)|what (?:have|did) i (?:told|tell) you"
    r"|tell me about myself|who am i"
    r"|(?:знаешь|помнишь|известно) (?:ты )?(?:обо|про) мн[ея]|обо мне (?:знаешь|помнишь|известно)|кто я"
    r"|я тебе (?:рассказ\w+|говорил\w*))\b"
)
_ABOUT_PAST = re.compile(
    r"\b(?:before|previous(?:ly)?|earlier|formerly|former|originally|original|used to|back then|at first|in the past"
    r"|(?:my|our|the) old|last time|history|changed?"
    r"|раньше|прежде|прежн\w+|ранее|до этого|сначала|изначально|первоначально|в прошлом|бывш\w+"
    r"|стар(?:ый|ая|ое|ые|ого|ой|ому|ую)|менял\w+|изменил\w+)\b"
)


def asks_about_self(question: str) -> bool:
    """Whether a question asks for everything that is known about the user."""
    return _ABOUT_SELF.search(" ".join(split_words(question))) is not None


_CAPITALISED = re.compile(r"(?<=[\w,'’\"“(] )[\"“'(]?([A-Z][a-z][\w’'-]+)")
_COMMON_CAPITALISED = frozenset(
    "monday tuesday wednesday thursday friday saturday sunday january february march april may june july august"
    " september october november december english german french russian spanish chinese".split()
)
_MAX_CAPITALISED_SHARE = 0.5  # of the words: more are a title, or a language that capitalises nouns


def find_proper_names(question: str) -> frozenset[str]:
    """The names in a question, in lower case: Latin words that are capitalised inside a sentence.

    find_proper_names("Who is the chief executive of Spirit?")  # {"spirit"}

    Days, months and languages are none. A German question, and one in which most words are capitalised, has none.
    """
    if detect_language(question) not in ("en", "ru"):
        return frozenset()
    found = _CAPITALISED.findall(question)
    if len(found) > _MAX_CAPITALISED_SHARE * len(question.split()):
        return frozenset()
    names = (re.sub(r"['’]s?$", "", name.casefold()) for name in found)
    return frozenset(name for name in names if name not in _COMMON_CAPITALISED)


_FOR_SEVERAL = re.compile(
    r"\b(?:what|which|whose)(?: \w+){0,2}? (?!does|has|was|this|his|its)\w{2,}[^\Ws]s"
    r" (?:do|does|did|have|has|had|are|were|is|was|am|can|could|should|will|would)\b"
    r"|\b(?:list|name|(?:what|which|who) are) (?:all|the|my|our)\b|\ball (?:the|my|our)\b"
    r"|\b(?:каких|какими|какие)\b|\b(?:перечисли|назови)(?:те)?\b|\bвсе (?:мои|наши|эти)\b"
)


def asks_for_several(question: str) -> bool:
    """Whether a question asks for a list: `Which books have I read?`."""
    return _FOR_SEVERAL.search(" ".join(split_words(question))) is not None


def asks_about_past(question: str) -> bool:
    """Whether a question wants to know how something was before."""
    return _ABOUT_PAST.search(" ".join(split_words(question))) is not None


_FOLLOW_UP = re.compile(
    r"(?:and|but|or|so|what about|how about|also|then|а|и|но|тогда|что насчет|как насчет)\b"
    r"|.*\b(?:it|its|he|him|his|she|her|hers|they|them|their|this|that|these|those|there|one"
    r"|он|она|оно|они|его|ее|им|их|ей|ему|нем|ней|них|этот|эта|это|эти|этого|этом|там|тогда)\b"
)
_YEAR = re.compile(r"(?:\b(?:in|of|for|during|в|за)\s+)?\b(?:19|20)\d\d\b(?:\s*(?:году|года|год|г\.))?", re.IGNORECASE)
_FEW_WORDS = 2  # content words: a question with no more refers to what was said before


def complete_follow_up(question: str, earlier: Sequence[str]) -> str:
    """A question that makes sense by itself: a follow-up together with the question that it continues.

    complete_follow_up("and in 2019?", ["What did the pilot cost in 2018?"])  # 'What did the pilot cost? and in 2019?'

    `earlier` are the questions before it, oldest first. Years of an earlier question are left out if this one names
    its own. Any other question is returned as it is.
    """
    text = question.strip()
    if not earlier or not _is_follow_up(text):
        return question
    before = complete_follow_up(earlier[-1], earlier[:-1][-_MAX_EARLIER:]).strip()
    if _YEAR.search(text):
        before = re.sub(r"\s+([?!.,])", r"\1", _YEAR.sub("", before)).strip()
    return f"{before} {text}" if before else question


_QUESTION_WORDS = (
    "what|how|who|whom|whose|when|where|why|which|что|как|кто|кого|кому|чей|чья|чьё|когда|где|куда|откуда|почему|зачем"
    "|како[йм]|какая|какие|каких|какое|каком|сколько"
)
_NEXT_QUESTION = re.compile(
    rf"(?:[?,;]|\s)\s*(?:and|but|и|а)\s+(?=(?:(?:in|on|at|by|for|to|from|until|since|with|of|до|на|за|во?|с|по|из|к|о|об)\s+)?"
    rf"(?:{_QUESTION_WORDS})\b)|\?\s+(?=\S)",
    re.IGNORECASE,
)


def split_questions(text: str) -> list[str]:
    """The questions that a text asks one after the other: "What did it cost, and who paid?" asks two.

    A text is one question unless each part has two content words of its own: "and why?" asks about what was said
    before it.
    """
    parts = [part.strip(" ,;") for part in _NEXT_QUESTION.split(text) if part.strip(" ,;?")]
    own = [len(set(extract_terms(part))) for part in parts]
    return parts if len(parts) > 1 and min(own) >= _FEW_WORDS else [text]


_MAX_EARLIER = 3


def _is_follow_up(question: str) -> bool:
    words = split_words(question)
    return len(extract_terms(question)) <= _FEW_WORDS or _FOLLOW_UP.match(" ".join(words)) is not None


SORTS: tuple[frozenset[str], ...] = tuple(
    frozenset(map(stem, words.split()))
    for words in (
        "dog dogs puppy собака собаку собаки пес пса щенок",
        "cat cats kitten кот кота кошка кошку кошки котенок",
        "parrot попугай попугая",
        "hamster хомяк хомяка",
        "horse лошадь лошади конь",
        "rabbit кролик кролика",
        "bird птица птицу",
        "fish рыбка рыбку",
        "son сын сына",
        "daughter дочь дочка дочери дочку",
        "kid",
        "brother брат брата",
        "sister сестра сестру сестры",
        "mother mom mum мать мама маму",
        "father dad отец отца папа папу",
        "wife жена жену",
        "husband муж мужа",
        "uncle дядя дядю",
        "aunt тетя тетю",
        "cousin",
        "nephew племянник племянника",
        "niece племянница племянницу",
        "grandmother grandma бабушка бабушку",
        "grandfather grandpa дедушка дедушку",
        "friend друг друга подруга подругу",
        "boss начальник начальника",
        "neighbour neighbor сосед соседа соседка соседку",
        "landlord",
        "dentist стоматолог стоматолога",
        "doctor врач врача",
        "teacher учитель учителя учительница учительницу",
        "pupil student ученик ученика ученица ученицу",
        "colleague коллега коллегу",
        "accountant бухгалтер бухгалтера",
    )
)
"""Sorts of animals, and then of people, each by its words in English and Russian."""


def find_sorts(words: Iterable[str]) -> frozenset[str]:
    """The sorts of people and animals that words name: every word for each, so that two languages meet."""
    named = frozenset(map(stem, words))
    return frozenset[str]().union(*(sort for sort in SORTS if sort & named))
