"""Names of companies in questions, and whether a name in a question means the company of a report.

Reports have the full name of the registrant, and questions a short form of it: a part ("Verizon"), the initials
("AMD"), or another spelling ("Coca Cola", "JnJ").
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from contexture.text.language import STOPWORDS

_MAX_NAME_WORDS = 4
_MIN_PART = 4  # letters of a part of a name, unless it is written in capitals
_MIN_CAPITALS = 3
_MAX_ABBREVIATION = 8
_MIN_TITLE_WORDS = 4
_TITLE_SHARE = 0.6  # of the words that begin with a capital: they tell nothing about names
_WORD = re.compile(r"[^\W_]+")
_NAME_WORD = r"(?:[^\W\d_a-zа-яё][\w&.-]*\w|\d{1,3}[A-Z]\w*|[A-Z](?=['’]))"
_RUN = re.compile(
    rf"(?<![\w-])(?P<name>{_NAME_WORD}(?:\s(?:(?:&|of)\s)?{_NAME_WORD}){{0,5}})(?P<owner>['’]s?(?!\w))?"
    r"|(?<![\w-])(?P<plain>[a-z][\w-]+)['’]s(?!\w)"
)
_BEFORE_SUBJECT = re.compile(
    r"\b(?:did|does|do|has|have|had|is|was|were|are|will|can|of|for|by|at|from|about|company|у|от|для|компани\w+)\s+$",
    re.IGNORECASE,
)
_SENTENCE_START = re.compile(r"(?:^|[.!?:;]\s+|\n)\W*$")
# Words of questions about reports that are often written with a capital, and name nobody.
_TERMS = frozenset(
    """gaap non ebitda ebitdar ebit cogs capex opex sg&a pp&e ppne ppe r&d roa roe roi roic dpo dso dio ccc fcf eps
    cagr yoy qoq ytd ttm ltm usd eur gbp us u.s usa uk eu m&a d&a fx esg ceo cfo coo sec ipo kpi kpis adjusted net gross
    operating total current quick cash flow flows income statement statements balance sheet sheets financial position
    earnings revenue revenues sales profit loss losses margin margins ratio ratios assets asset liabilities liability
    equity debt inventory inventories dividend dividends tax taxes capital expenditure expenditures working free fiscal
    year years quarter quarters annual quarterly report reports form item items note notes segment segments company
    companies corporation group board management chief officer executive president chairman consolidated common stock
    share shares january february march april may june july august september october november december monday tuesday
    wednesday thursday friday saturday sunday american america european europe asia canada china india latin north south
    pacific emea apac covid covid-19 q1 q2 q3 q4 h1 h2 fy pdf csv""".split()
)
_TERM_SHAPE = re.compile(
    r"(?:fy|q|h|cy)?['’]?\d[\d./-]*(?:q[1-4]|fy)?|(?:10|20|8|6)-?[kqf]|\d{1,2}[a-c]", re.IGNORECASE
)
_GENERAL_WORDS = frozenset(
    """american general united international first best advanced national new north south east west great global world
    standard central common total home public western eastern pacific atlantic union digital applied texas southern
    northern federal consolidated allied real what which when does have the this that from with bank""".split()
)
_LEGAL_FORM = re.compile(
    r"[\s,]+(?:inc|incorporated|corp|corporation|company|co|plc|ltd|limited|llc|l\.?p|n\.?v|s\.?a|ag|se|group|holdings?"
    r"|and subsidiaries|& co)\b\.?|\.com\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """A name in a question; `owns` says that it has a possessive ending, `acts` that what is asked for is of it."""

    name: str
    owns: bool = False
    acts: bool = False


def squeeze_name(name: str) -> str:
    """A name in lower case without spaces and punctuation, as it is compared."""
    return "".join(_WORD.findall(name.casefold()))


def clean_company(name: str) -> str:
    """A company's name without its legal form and the article: `Boeing` of `The Boeing Company`."""
    short = _LEGAL_FORM.sub("", name.strip(" *#_")).strip(" ,")
    return re.sub(r"^the\s+", "", short, flags=re.IGNORECASE) or name


def list_subjects(question: str) -> tuple[Subject, ...]:
    """The names in a question, in order: runs of words with a capital, and words with a possessive ending."""
    titled = _is_title_case(question)
    return tuple(_list_subjects(question, titled=titled))


def _list_subjects(question: str, *, titled: bool) -> Iterator[Subject]:
    for run in _RUN.finditer(question):
        if run["plain"]:
            if run["plain"] not in _TERMS:
                yield Subject(name=run["plain"], owns=True)
            continue
        owns, words = bool(run["owner"]), run["name"].split()
        if not owns and _SENTENCE_START.search(question[: run.start()]) and not _is_unusual(words[0]):
            words = words[1:]  # a capital at the start tells nothing
        name = " ".join(_strip_terms(words))
        if name and (owns or not titled):
            before = question[: question.index(name.split()[0], run.start())]
            yield Subject(name=name, owns=owns, acts=owns or _BEFORE_SUBJECT.search(before) is not None)


def _is_title_case(question: str) -> bool:
    words = [word for word in question.split()[1:] if word[:1].isalpha()]
    capitals = sum(word[0].isupper() for word in words)
    return len(words) >= _MIN_TITLE_WORDS and capitals >= _TITLE_SHARE * len(words)


def _is_unusual(word: str) -> bool:
    """Whether a word is written as names are: with capitals or digits behind its first letter."""
    return any(sign.isupper() for sign in word[1:]) or word[:1].isdigit()


def _strip_terms(words: list[str]) -> list[str]:
    """The words of a name without those at its ends that name nobody."""
    kept = list(words)
    while kept and _names_nobody(kept[0]):
        kept.pop(0)
    while kept and _names_nobody(kept[-1]):
        kept.pop()
    return kept


def _names_nobody(word: str) -> bool:
    plain = word.casefold().strip(".,")
    stop = plain in STOPWORDS["en"] or plain in STOPWORDS["ru"] or plain == "&"
    return stop or plain in _TERMS or _TERM_SHAPE.fullmatch(plain) is not None


def names_company(subjects: tuple[Subject, ...], names: frozenset[str], company: str) -> bool:
    """Whether a question names a company: its whole name is in `names`, or a subject is a short form of it."""
    return bool(company) and (squeeze_name(clean_company(company)) in names or _has_short_form(subjects, company))


@lru_cache(maxsize=16_384)
def _has_short_form(subjects: tuple[Subject, ...], company: str) -> bool:
    return any(is_short_form(part, company) for each in subjects for part in _list_parts(each.name))


def _list_parts(name: str) -> Iterator[str]:
    """The runs of words of a name."""
    words = name.split()
    for size in range(1, min(len(words), _MAX_NAME_WORDS) + 1):
        for at in range(len(words) - size + 1):
            yield " ".join(words[at : at + size])


def is_short_form(name: str, company: str) -> bool:
    """Whether a name is the beginning of a company's name, or made of the beginnings of its words.

    Words that many companies begin with, such as "General", and parts of one to three letters are no short forms,
    capitals excepted.
    """
    short, full = squeeze_name(name), squeeze_name(clean_company(company))
    if not short or short in _GENERAL_WORDS or not full:
        return False
    least = _MIN_CAPITALS if name.isupper() or any(sign.isdigit() for sign in name) else _MIN_PART
    if (len(short) >= least and full.startswith(short)) or short == full:
        return True
    return _is_unusual(name) and " " not in name and _abbreviates(short, company)


def _abbreviates(short: str, company: str) -> bool:
    """Whether `short` is made of beginnings of the first two or more words, as AmEx and JnJ are."""
    words = [word.casefold() for word in re.findall(r"[^\W_]+|&", clean_company(company))]
    return (
        len(words) > 1
        and len(short) <= _MAX_ABBREVIATION
        and _match_beginnings(short, tuple("n" if word == "&" else word for word in words), 0)
    )


def _match_beginnings(rest: str, words: tuple[str, ...], used: int) -> bool:
    if not rest:
        return used > 1
    if not words:
        return False
    skipped = words[0] in {"n", "and", "of"} and used > 0 and _match_beginnings(rest, words[1:], used)
    return skipped or any(
        rest[:size] == words[0][:size] and _match_beginnings(rest[size:], words[1:], used + 1)
        for size in range(1, min(len(rest), len(words[0])) + 1)
    )
