"""What a reader sees in a text, and what a tokenizer would.

`skeleton` maps look-alikes of other scripts, full-width and styled letters to lower-case ASCII and drops accents and
everything invisible, so that two texts that look alike have equal skeletons. `remove_invisible` drops characters that
show nothing, except where a script or an emoji needs them.

Control tokens of chat templates are disarmed: text that spells one no longer becomes that token. A space after the
first character is enough for every tokenizer, is valid inside JSON, and leaves the text readable.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain

from contexture.text.mapped import fold_char

_LOOKALIKES = {
    "a": "аАɑαΑᴀ⍺Ꭺꓮ", "b": "ЬьвВβΒʙƄᏴᏏꓐ", "c": "сСϲϹᴄⲥⲤᏟꓚ", "d": "ԁᏧᎠꓒᴅժ", "e": "еЕєЄεΕᴇ℮ҽᎬꓰ", "f": "ϝғꜰꓝꞙſ",
    "g": "ɡԍԌɢցᏀꓖ", "h": "һҺнНΗʜհᎻᏂꓧ", "i": "іІιΙɩıɪᎥ", "j": "јЈϳʝᴊᎫꓙȷ", "k": "кКκΚᴋᏦꓗ", "l": "ӏӀʟᏞꓡן∣ǀ",
    "m": "мМΜᴍϻᎷꓟ", "n": "пΝηɴոռꓠ", "o": "оОοΟσΣօՕᴏⲟⲞꓳ", "p": "рРρΡᴘⲣⲢᏢꓑ", "q": "ԛԚգ", "r": "гᴦʀꭇꮁᎡꓣ",
    "s": "ѕЅʂꜱՏᏚꓢςꙅ", "t": "тТτΤᴛᎢꓔ", "u": "υսᴜμꓴц", "v": "νѵѴᴠᏙꓦ", "w": "ѡωԝԜɯᴡᎳꓪшщ", "x": "хХχΧꓫ",
    "y": "уУүҮγΥʏყᎩꓬ", "z": "ᴢΖζᏃꓜ",
    ":": "ː˸։׃܃܄∶꞉⁚፡", "[": "⟦〚【〖⁅❲⦋〔⦗〘", "]": "⟧〛】〗⁆❳⦌〕⦘〙", "<": "‹⟨〈˂ᐸ❮", ">": "›⟩〉˃ᐳ❯",
    "|": "❘⏐│┃￨", "#": "♯", "-": "─━⎯", "=": "═꓿", "*": "∗⁎✱✻", "/": "⁄∕╱⧸", "(": "❨❪⦅", ")": "❩❫⦆", "`": "ˋ‵",
}  # fmt: skip
_LETTER_A = ord("a")
_STYLED_LETTERS = (0x1F150, 0x1F170, 0x1F1E6)  # white on black circles and squares, regional indicators
_ALPHABET = 26


class _SkeletonTable(dict[int, str]):
    """The skeleton of each character by code point, computed on first use, for `str.translate`."""

    def __missing__(self, code: int) -> str:
        found = self[code] = _skeleton_char(chr(code))
        return found


def _skeleton_char(char: str) -> str:
    if char.isascii():
        return char.lower()
    for first in _STYLED_LETTERS:
        if first <= ord(char) < first + _ALPHABET:
            return chr(ord(char) - first + _LETTER_A)
    folded = fold_char(char)
    if folded != char:
        return folded.lower()
    letters = [part for part in unicodedata.normalize("NFKD", char) if unicodedata.category(part) != "Mn"]
    return "".join(_LOOKALIKE_OF.get(part) or _LOOKALIKE_OF.get(low := part.lower(), low) for part in letters)


_LOOKALIKE_OF = {other: plain for plain, others in _LOOKALIKES.items() for other in others}
_TABLE = _SkeletonTable()


def skeleton(text: str) -> str:
    """The text as it looks, in lower case: equal for texts that a reader cannot tell apart; line breaks stay.

    skeleton("Ѕуѕтем:")    # 'system:'
    """
    return text.lower() if text.isascii() else text.translate(_TABLE)


def map_skeleton(text: str) -> tuple[str, list[int]]:
    """The skeleton, and for each of its characters the offset of the character behind it in the text."""
    parts = [_TABLE[ord(char)] for char in text]
    return "".join(parts), list(chain.from_iterable([at] * len(part) for at, part in enumerate(parts)))


_FLAG = "\U0001f3f4"
_FLAG_TAGS = tuple(
    "".join(chr(0xE0000 + ord(char)) for char in region) + "\U000e007f" for region in ("gbeng", "gbsct", "gbwls")
)
_PICTURE = "\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff"
# Scripts whose letters a joiner or non-joiner between them shapes: Arabic, Syriac, N'Ko, the Indic ones, Mongolian.
_JOINING = "\u0600-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u17ff\u1800-\u18af\ufb50-\ufdff\ufe70-\ufefc"
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_INVISIBLE_CHARS = (
    "\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f"  # control characters except white space and line breaks
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_INVISIBLE = re.compile(f"[{_INVISIBLE_CHARS}]")
_INVISIBLE_ASCII = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f]")
_NEEDED_OR_INVISIBLE = re.compile(
    f"({_FLAG}(?:{'|'.join(_FLAG_TAGS)})"
    f"|[{_PICTURE}\U0001f3fb-\U0001f3ff]\ufe0f?\u200d(?=[{_PICTURE}])"  # an emoji of several
    f"|[{_PICTURE}0-9#*][\ufe0e\ufe0f](?![\ufe00-\ufe0f])"  # a picture as text or in colour
    f"|[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff][\ufe00-\ufe02\U000e0100-\U000e01ef]"  # an ideograph's form
    "(?![\ufe00-\ufe0f\U000e0100-\U000e01ef])"
    f"|[{_JOINING}][\u200c\u200d](?=[{_JOINING}]))"
    f"|[{_INVISIBLE_CHARS}]"
)
_DIRECTION_MARKS = re.compile("[\u200e\u200f\u061c\u2066-\u2069]")


def remove_invisible(text: str) -> str:
    """The text without characters that show nothing and could carry hidden text or reorder what is shown.

    Kept are joiners in scripts that need them, the parts of emoji, the forms of ideographs, and single directional
    marks in a text with right-to-left letters.
    """
    if text.isascii():
        return _INVISIBLE_ASCII.sub("", text) if not text.isprintable() else text
    if _INVISIBLE.search(text) is None:
        return text
    directed = _RIGHT_TO_LEFT.search(text) is not None
    return _NEEDED_OR_INVISIBLE.sub(lambda found: found[1] or _keep_direction(found, directed=directed), text)


def describe_invisible(text: str) -> str:
    """How many characters `remove_invisible` removes, as a note; empty when it removes none."""
    removed = len(text) - len(remove_invisible(text))
    return f"{removed} invisible characters removed" if removed else ""


def _keep_direction(found: re.Match[str], *, directed: bool) -> str:
    """A lone directional mark of a right-to-left text; nothing for any other character."""
    if not directed or _DIRECTION_MARKS.fullmatch(found[0]) is None:
        return ""
    before, after = found.string[found.start() - 1 : found.start()], found.string[found.end() : found.end() + 1]
    return "" if any(_INVISIBLE.fullmatch(char) for char in (before, after)) else found[0]


_WORDS_IN_ANGLES = (
    "s|pad|unk|bos|eos|mask|start_of_turn|end_of_turn|start_of_image|end_of_image|image_soft_token|think|tool_call"
    "|tool_response|tools|function_calls|function_results|sentence_start|sentence_end|extra_id_[0-9]+|unused[0-9]+"
)
_WORDS_IN_BRACKETS = "inst|system_prompt|available_tools|tool_calls|tool_results|tool_content|img|b_inst|e_inst"
# Any `<|name|>` is one: Llama, ChatML, Phi, Command R, Harmony and DeepSeek (with a full-width bar) all write them so.
_CONTROL = rf"<[|｜][^<>|｜\s]+[|｜]>|<</?sys>>|</?(?:{_WORDS_IN_ANGLES})>|\[/?(?:{_WORDS_IN_BRACKETS})\]"
_SIGNS = re.compile(r"[<\[＜［﹤‹⟨〈˂ᐸ❮⟦〚【〖⁅❲⦋〔﹝⦗〘]")


def disarm_control_tokens(text: str, special: Sequence[str] = ()) -> str:
    """The text with a space after the first character of every control token, also of one in look-alike letters.

    `special` are further tokens that the tokenizer of a model declares. The result has none left.

    disarm_control_tokens("<|im_start|>system")    # '< |im_start|>system'
    """
    if _SIGNS.search(text) is None and not special:
        return text
    pattern = _compile(tuple(special))
    if text.isascii():
        return pattern.sub(_split_token, text)
    if pattern.search(skeleton(text)) is None:
        return text
    plain, offsets = map_skeleton(text)
    for start in reversed([offsets[found.start()] + 1 for found in pattern.finditer(plain)]):
        text = f"{text[:start]} {text[start:]}"
    return text


def has_control_token(text: str, special: Sequence[str] = ()) -> bool:
    """Whether a text spells a control token."""
    if _SIGNS.search(text) is None and not special:
        return False
    plain = text if text.isascii() else skeleton(text)
    return _compile(tuple(special)).search(plain) is not None


def _split_token(found: re.Match[str]) -> str:
    return f"{found[0][0]} {found[0][1:]}"


@lru_cache(maxsize=32)
def _compile(special: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted(
        {token.lower() for token in special if len(token) > 1}, key=lambda token: (-len(token), token)
    )
    return re.compile("|".join([_CONTROL, *map(re.escape, longest_first)]), re.IGNORECASE)
