"""The language of a text, by script and then by function words, and the stop words of each language."""

import re
from collections import Counter

STOPWORDS: dict[str, frozenset[str]] = {
    "en": frozenset(
        """a about above after again against all also am an and any are aren as at be because been before being
        below between both but by can cannot could couldn d did didn do does doesn doing don down during each
        either else ever few for from further get got had hadn has hasn have haven having he her here hers
        herself him himself his how i if in into is isn it its itself just ll may me might mightn more most must
        mustn my myself neither no nor not now of off on once only onto or other ought our ours ourselves out
        over own per re s same shall shan she should shouldn so some such t than that the their theirs them
        themselves then there these they this those through thus to too under until up upon us ve very via was
        wasn we were weren what when where whether which while who whom whose why will with within without won
        would wouldn yet you your yours yourself yourselves""".split()
    ),
    "ru": frozenset(
        """а без более больше бы был была были было быть в вам вас ваш весь во вот все всего всех вы где да даже
        для до его ее её ей ему если есть ещё еще ж же за здесь и из или им их к как какая какие какой каких
        какова когда кого которая которого которое которой которую которые который которых кто ли либо лишь
        между меня мне мной можно мой мы на над надо нам нас наш не него нее неё ней нет ни них но ну о об один
        одна однако он она они оно от очень по под после потом потому почему при про с сам свой свои своего
        своей своих себе себя сейчас со так также такой там тебя тем теперь то того тоже только том тот той ту
        ты у уже хотя чего чем через что чтобы чьи чья эта эти этих это этого этой этом этот эту я сколько чему
        каким какому""".split()
    ),
    "de": frozenset(
        """aber als am an auch auf aus bei bin bis das dass dem den der des die dies diese ein eine einem einen
        einer er es für hat ich ihr im in ist ja kann mit nach nicht noch nur oder sein sich sie sind so um und
        uns von vor war wenn werden wie wir wird zu zum zur über""".split()
    ),
    "fr": frozenset(
        """au aux avec ce ces cette dans de des du elle en est et être il ils je la le les leur lui mais même ne
        nous on ou où par pas plus pour que qui sa se ses son sont sur un une vous été à""".split()
    ),
    "es": frozenset(
        """al como con de del el ella en entre era es esta este está fue ha la las le lo los más me muy no nos o
        para pero por que se ser sin sobre son su sus también un una y ya""".split()
    ),
    "it": frozenset(
        """al alla anche che chi come con da dal dei del della delle di e è gli ha i il in io la le lo ma nel nella
        non per più quando questo se si sono su un una""".split()
    ),
    "pt": frozenset(
        """ao aos as com como da das de do dos e ela em entre era essa este está eu foi há isso mais mas na nas no
        nos não o os ou para pela pelo por que se sem ser seu sua são também um uma você""".split()
    ),
    "nl": frozenset(
        """aan als bij dat de den die dit door een en er had het hij ik in is je kan maar met naar niet nog of om
        onder ook op over te tot uit van voor was wat we wel werd wordt ze zich zijn zou""".split()
    ),
}


UNKNOWN_LANGUAGE = "und"

_SAMPLE_CHARS = 2_000
_SCRIPTS = (
    ("ru", re.compile(r"[\u0400-\u04ff]")),
    ("zh", re.compile(r"[\u4e00-\u9fff]")),
    ("ja", re.compile(r"[\u3040-\u30ff]")),
    ("ko", re.compile(r"[\uac00-\ud7af]")),
    ("ar", re.compile(r"[\u0600-\u06ff]")),
    ("th", re.compile(r"[\u0e00-\u0e7f]")),
    ("el", re.compile(r"[\u0370-\u03ff]")),
    ("he", re.compile(r"[\u0590-\u05ff]")),
)
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]")
_WORD = re.compile(r"[a-z\u00df-\u024f]+")
_UKRAINIAN = re.compile(r"[іїєґ]", re.IGNORECASE)
_LATIN_LANGUAGES = tuple(lang for lang in STOPWORDS if lang not in ("ru", "uk"))
_LANGUAGES_BY_STOPWORD = {
    word: tuple(lang for lang in _LATIN_LANGUAGES if word in STOPWORDS[lang])
    for word in frozenset[str]().union(*(STOPWORDS[lang] for lang in _LATIN_LANGUAGES))
}
_KANA_WEIGHT = 3  # Japanese mixes kana with Han; Chinese has no kana at all


def detect_language(text: str) -> str:
    """The ISO 639-1 code of the main language, or `und` when there are no letters.

    The script decides where it is unambiguous. Latin text is English unless the function words of another
    language outnumber the English ones, so that short English labels stay English.
    """
    sample = text[:_SAMPLE_CHARS]
    if sample.isascii():
        return _latin_language(sample) if _LATIN.search(sample) else UNKNOWN_LANGUAGE
    latin = len(_LATIN.findall(sample))
    counts = {lang: len(pattern.findall(sample)) for lang, pattern in _SCRIPTS}
    counts["ja"] *= _KANA_WEIGHT
    best = max(counts, key=lambda lang: counts[lang])
    if counts[best] == 0 and latin == 0:
        return UNKNOWN_LANGUAGE
    if counts[best] * 2 >= latin:
        return "uk" if best == "ru" and len(_UKRAINIAN.findall(sample)) * 20 > counts["ru"] else best
    return _latin_language(sample)


def _latin_language(sample: str) -> str:
    scores: Counter[str] = Counter()
    for word, times in Counter(_WORD.findall(sample.lower())).items():
        for lang in _LANGUAGES_BY_STOPWORD.get(word, ()):
            scores[lang] += times
    best = max(_LATIN_LANGUAGES, key=lambda lang: (scores[lang], lang == "en"))
    return best if scores[best] > scores["en"] else "en"
