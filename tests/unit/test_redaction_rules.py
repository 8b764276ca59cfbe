"""Each rule against things it must find and things that only look like them."""

from __future__ import annotations

import pytest

from contexture.adapters.redaction._personal_data import passes_inn, passes_luhn, passes_mod97, passes_snils
from contexture.adapters.redaction.default import default_redactor

REDACTOR = default_redactor(secrets=False)
WITH_URLS = default_redactor(entities=("URL",), secrets=False)

FOUND = [
    ("EMAIL", "write to «anna.smith+news@mail.example.co.uk», please"),
    ("EMAIL", "(«o'brien@example.org»)"),
    ("EMAIL", "mailto:«x@example.museum»."),
    ("EMAIL", "пишите на «почта@пример.рф», ответим"),
    ("EMAIL", "«ivan_petrov@xn--e1afmkfd.xn--p1ai»"),
    ("EMAIL", "in the directory as «jaden.white@protrace»"),
    ("CARD", "paid with «4111 1111 1111 1111» yesterday"),
    ("CARD", "amex «3782-822463-10005»"),
    ("CARD", "«5555555555554444»"),
    ("CARD", "my card number is «060426070011»?"),
    ("CARD", "карта «2200 0000 0000 0053»"),
    ("IBAN", "send it to «GB82 WEST 1234 5698 7654 32» TODAY PLEASE"),
    ("IBAN", "iban «de89370400440532013000»"),
    ("IBAN", "«NO93 8601 1117 947»"),
    ("IBAN", "«FR14 2004 1010 0505 0001 3M02 606»"),
    ("IP", "from «8.8.8.8»:53"),
    ("IP", "host «2001:db8:85a3::8a2e:370:7334» answered"),
    ("SSN", "filed as «078-05-1120»"),
    ("SSN", "SSN «078 05 1120»"),
    ("DRIVER_LICENSE", "My driver's license number is «F162823540116»"),
    ("PHONE", "«+1-903-140-4508x769»"),
    ("PHONE", "«+46 (0)8 928 571 38» fax"),
    ("PHONE", "«001-518-640-0854»"),
    ("PHONE", "«+447700 921 916»"),
    ("PHONE", "the number «(579)888-3058» is old"),
    ("PHONE", "«541-714-1388»"),
    ("PHONE", "«03.93.92.16.85»"),
    ("PHONE", "«0490 75 40 81»"),
    ("PHONE", "«07700 063 966»-Fax"),
    ("PHONE", "call me at «78 651 450»"),
    ("PHONE", "Phone: «451 5986»"),
    ("PHONE", "«28-64-66-98» office"),
    ("PHONE", "Desk: «5403926876»"),
    ("PHONE", "Phone: «712 345»"),
    ("PHONE", "his number «02 234 5678»"),
    ("PHONE", "«(010) 123456»"),
    ("PHONE", "+49: «+49 30 901820»"),
    ("PHONE", "«+7 (916) 123-45-67»"),
    ("PHONE", "наберите «8 (495) 123-45-67 доб. 12»"),
    ("PHONE", "«8-800-555-35-35»"),
    ("PHONE", "это «89161234567»"),
    ("PHONE", "тел. «123-45-67»"),
    ("PHONE", "позвоните по номеру «2 345 678 90»"),
    ("RU_PASSPORT", "паспорт «4509 123456» выдан"),
    ("RU_PASSPORT", "паспорт серия «45 09 номер 123456»"),
    ("RU_PASSPORT", "предъявил «45 09 123456» на входе"),
    ("RU_PASSPORT", "«4509 № 123456»"),
    ("INN", "ИНН «7707083893»"),
    ("INN", "ИНН: «500100732259»"),
    ("SNILS", "«112-233-445 95»"),
    ("SNILS", "СНИЛС «11223344595»"),
    ("RU_ACCOUNT", "р/с «40817810099910004312» в банке"),
    ("UK_NHS", "Her NHS number is «943 476 5919»"),
    ("CRYPTO", "my bitcoin wallet «1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa»"),
    ("CA_SIN", "SIN: «130 692 544»"),
    ("PL_PESEL", "PESEL «44051401458»"),
    ("ABA_ROUTING_NUMBER", "ABA routing «021000021»"),
    ("UK_NINO", "my NINO is «AB123456C»"),
    ("AU_TFN", "TFN «876543210»"),
    ("AU_MEDICARE", "medicare «2123456701»"),
    ("IN_AADHAAR", "aadhaar «2345 6789 0124»"),
    ("IN_PAN", "PAN: «ABCPE1234F»"),
    ("SG_NRIC_FIN", "NRIC «S1234567D»"),
    ("ES_NIF", "DNI «12345678Z»"),
    ("IT_FISCAL_CODE", "codice fiscale «RSSMRA85T10A562S»"),
    ("US_ITIN", "ITIN «912-70-1234»"),
    ("US_PASSPORT", "passport «A12345678»"),
    ("US_BANK_NUMBER", "account number «123456789012»"),
    ("MEDICAL_LICENSE", "DEA «BB1388568»"),
]

NOT_FOUND = [
    "an @mention and a price of 5 @ 3.50",
    "![CleanShot at 18.53.56@2x.png](../assets/shot_18.53.56@2x_1622_0.png)",
    "git clone user@host",
    "4111 1111 1111 1112 fails its check digit",
    "0000 0000 0000 0000",
    "the card number 0000 0000 0000 0000 is a placeholder, and so is card 8888888888888888",
    "order 123456789012345678901234",
    "timestamp 1700000000000",
    "GB82 WEST 1234 5698 7654 33",
    "version 1.2.3.4 of the tool, EC 1.14.16.2",
    "127.0.0.1, 10.0.0.1, 172.16.0.1, 192.168.0.1, 169.254.169.254",
    "256.256.256.256 and 1.2.3 and 1.2.3.4.5.6 and 1.2.3.04",
    "at 12:20:39 std::vector a::b",
    "078-05-0000 and 666-12-3456 and 900-12-3456",
    "from 2003-08-28 12:13:52 to 28.08.2003 and 1990-1995",
    "ZIP: 75534-030",
    "on 05 12 2023 the mobile 2023-12-05 was sold",
    "iPhone 14 and phone 15",
    "we reach 2 000 000 people and 1 234 567 more",
    "treated with PD-0332991 and PD 0332991",
    "isbn 978-3-16-148410-0",
    "ИНН 7707083894",
    "счёт 7707083893 оплачен",
    "112-233-445 96",
    "в 1941 1945 годах, 12 345 человек",
    "заказ 4509 123456",
    "943 476 5919",
    "https://example.org/path?page=2",
]


@pytest.mark.parametrize(("label", "marked"), FOUND)
def test_a_rule_finds_exactly_what_is_marked(label: str, marked: str) -> None:
    """The one span covers what stands between the marks, under the expected label."""
    start, end = marked.index("«"), marked.index("»") - 1
    text = marked.replace("«", "").replace("»", "")

    assert [(start, end, label)] == [(span.start, span.end, span.label) for span in REDACTOR.scan(text, "")]


@pytest.mark.parametrize("text", NOT_FOUND)
def test_rules_leave_lookalikes_alone(text: str) -> None:
    """Dates, amounts, failed check digits and local addresses are no personal data."""
    assert [] == [(text[span.start : span.end], span.label) for span in REDACTOR.scan(text, "")]


def test_addresses_of_pages_are_found_only_when_asked_for() -> None:
    """URL is a rule that is off by default."""
    text = "see https://example.org/a?b=1, please"

    assert [] == REDACTOR.scan(text, "en")
    assert ["https://example.org/a?b=1"] == [text[span.start : span.end] for span in WITH_URLS.scan(text, "en")]


@pytest.mark.parametrize(
    ("passes", "good"),
    [
        (passes_luhn, "4111111111111111"),
        (passes_mod97, "GB82WEST12345698765432"),
        (passes_inn, "7707083893"),
        (passes_inn, "500100732259"),
        (passes_snils, "112-233-445 95"),
    ],
)
def test_changing_any_one_digit_fails_the_check(passes, good: str) -> None:
    """Every checksum catches a single wrong digit."""
    assert passes(good)
    for index, char in enumerate(good):
        if char.isdigit():
            assert not passes(good[:index] + str((int(char) + 1) % 10) + good[index + 1 :])


@pytest.mark.parametrize("digit", "0123456789")
def test_a_repeated_digit_is_no_card(digit: str) -> None:
    """A number of one digit fails the Luhn check in every length that cards have, also where its sum would pass."""
    assert not any(passes_luhn(digit * length) for length in range(12, 20))


@pytest.mark.parametrize(
    ("passes", "bad"),
    [
        (passes_inn, "0000000000"),
        (passes_inn, "77070838931"),
        (passes_snils, "00000000000"),
        (passes_snils, "1122334459"),
    ],
)
def test_zeros_and_wrong_lengths_are_no_documents(passes, bad: str) -> None:
    """A number of nothing but zeros, or of another length, has no valid check digits."""
    assert not passes(bad)


def test_an_unknown_country_code_is_no_telephone_number() -> None:
    """A plus sign before a code that no country has is not enough."""
    assert [] == REDACTOR.scan("+999 123 456 789 000", "")
