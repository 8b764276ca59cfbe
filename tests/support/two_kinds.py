"""Questions over the samples, each with what it needs: passages of two kinds of sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Need:
    """A passage that a question needs: its kind, the ids of the records that hold it if they matter, and its words."""

    kind: str
    ids: tuple[str, ...]
    words: tuple[str, ...]

    def is_met_by(self, kind: str, names: set[str], text: str) -> bool:
        """Whether a source of this kind, with these names and this text, has the passage."""
        return (
            kind == self.kind and (not self.ids or bool(names & set(self.ids))) and any(w in text for w in self.words)
        )


def need(kind: str, ids: str, words: str) -> Need:
    """A need; `ids` and `words` are alternatives, separated by `|`; without `ids` any record will do."""
    return Need(kind, tuple(filter(None, ids.split("|"))), tuple(words.split("|")))


QUESTIONS: Sequence[tuple[str, Need, Need]] = (
    ("How is a gauge reset after a power cut, and whom do I tell in Drossel?",
     need("records", "handbook/gauge-reset.md", "hold the blue button"),
     need("memories", "mem-contact", "Hanne Lindt")),
    ("How long does a gauge battery last during a storm watch, and how long without mains power?",
     need("records", "handbook/storm-watch.md", "about thirty hours"), need("memories", "mem-battery", "nine days")),
    ("What did the tidal pilot cost, and how dear does the harbour bridge get?",
     need("pages", "tidal-pilot.pdf, page 1", "2.6 million crowns"),
     need("news", "bridge-03|bridge-04", "million euros")),
    ("Why was the second quarter of 2025 weak, and how far are the talks with the dockers now?",
     need("pages", "figures-2025.pdf, page 1", "strike of the dockers"),
     need("news", "strike-07|strike-08|strike-09", "talks")),
    ("When do I go to Drossel for the walk-through, and which task prepares the launch there?",
     need("memories", "mem-walk", "Thursday"), need("workspace", "task-456", "Prepare the launch")),
    ("Which spare parts did Boris order, and who has to sign large orders?",
     need("memories", "mem-boris-parts", "six spare power supplies"),
     need("records", "handbook/spare-parts.md", "finance lead")),
    ("Who has night duty in odd weeks, and how fast must an alarm be acknowledged?",
     need("workspace", "support-6-1", "Olga"), need("records", "handbook/on-call.md", "within ten minutes")),
    ("Which damage will the insurer not pay for, and why were two boats lost in the night of the storm?",
     need("pages", "insurer-letter-scan.pdf, page 1", "cannot accept"),
     need("workspace", "storm-incident-1", "outer gauge had stopped")),
    ("How many homes lost power in storm Berta, and when does a storm watch begin?",
     need("news", "storm-02", "12,000 homes"), need("records", "handbook/storm-watch.md", "force nine")),
    ("Who leads the election in Vellmar, and what does the Vellmar coast ask us for?",
     need("news", "vote-04", "41.2 percent"), need("workspace", "vellmar-2-1|vellmar-2-2|vellmar-1", "harbour")),
    ("What did the fire at the chip plant in Drossel do, and how long do sensor heads take to arrive?",
     need("news", "chips-03|chips-04", "clean room"), need("records", "handbook/spare-parts.md", "five weeks")),
    ("How often are pumps inspected, and who repairs a broken one?",
     need("pages", "maintenance-plan.docx, page 1", "each quarter"),
     need("records", "handbook/spare-parts.md", "repaired by Viktor")),
    ("Which turbines should the board decide on, and what was decided about forecasts for insurers?",
     need("pages", "board-briefing.pptx, page 2", "Four more tidal turbines"),
     need("workspace", "board-2|roadmap-4-2", "insurers")),
    ("What changes with 3.0, and is there a task to freeze its firmware?",
     need("records", "releases/3.0-plans.md", "user list"), need("workspace", "task-firmware", "Freeze the firmware")),
    ("Что делать, если горит красный свет, и за сколько минут подтверждают тревогу?",
     need("workspace", "duty-ru-3-1", "водолаз"), need("records", "handbook-ru/dezhurstvo.md", "за десять минут")),
    ("Сколько часов работала третья насосная станция, и как часто осматривают мареографы?",
     need("pages", "otchet-nasosy.pdf, page 1", "4120"),
     need("records", "handbook-ru/oborudovanie.md", "раз в три месяца")),
    ("Сколько докеров бастует, и во что забастовка обошлась порту в 2025 году?",
     need("news", "strike-r2|strike-r3|strike-r4", "1200"),
     need("pages", "figures-2025.pdf, page 1", "0.9 million crowns")),
    ("What did the gauges in Vellmar do in last week's storm, and what made the outer gauge stop that night?",
     need("memories", "mem-storm", "ten-second readings"), need("workspace", "storm-incident-2", "old batch")),
    ("How long did the gauge at the outer quay need after its reset, and how long does the update to 2.4 take?",
     need("memories", "mem-reset-wait", "four minutes"), need("records", "releases/2.4.md", "about four minutes")),
    ("Where does a gauge get the time indoors, and what goes wrong when its battery is pulled?",
     need("memories", "mem-clock", "service port"), need("records", "handbook/gauge-reset.md", "clock is lost")),
    ("How far off was the gauge in Drossel after the power cut, and who is the harbour master?",
     need("memories", "mem-reset-drift", "three centimetres"),
     need("workspace", "customer-drossel-1", "Ms. Aldous")),
    ("Which slides do I have to prepare, and how do I like my answers?",
     need("workspace", "demo-notes-3", "slides"), need("memories", "mem-morning", "short answers")),
    ("What did the microphone experiment show, and how is sampling changed in a storm watch?",
     need("workspace", "experiments-3-1", "four minutes before"),
     need("records", "handbook/storm-watch.md", "every ten seconds")),
    ("How much were wages in 2025, and what did the cable fault do to power prices?",
     need("pages", "figures-2025.pdf, page 2", "21.2 million"), need("news", "energy-03|energy-04", "percent")),
    ("When does the shuttle to Senn leave, and how long before must a trip be agreed?",
     need("workspace", "handbook-2-1", "07:40"), need("records", "handbook-ru/komandirovki.md", "за неделю")),
    ("Who signs for spare parts above 50,000 crowns, and why is the red line of sensor heads at three?",
     need("pages", "maintenance-plan.docx, page 2", "Ilse Brandt"),
     need("records", "handbook/spare-parts.md", "red line")),
    ("Which rocket was launched from Senn, and how much power did the pilot in the narrows of Senn deliver?",
     need("news", "space-03|space-04", "Albatross-2"), need("pages", "tidal-pilot.pdf, page 1", "412 megawatt hours")),
    ("Why does an alarm ring twice, and what did release 2.3 change about red alarms?",
     need("workspace", "bug-alarm-twice", "both networks"), need("records", "releases/2.3.md", "three in a row")),
    ("How do shops prepare for a long strike, and which risks does the briefing for the board name?",
     need("news", "strike-10", "three weeks"), need("pages", "board-briefing.pptx, page 3", "second strike")),
    ("Где записывают перезапуск датчика, и до какого числа отправляют отчёт портовым властям?",
     need("memories", "mem-ru-log", "журнале"), need("records", "handbook-ru/otchety.md", "пятого числа")),
    ("Who talks to the laboratory about the certificate, and how long does a battery last at ten-second readings?",
     need("workspace", "", "Anna calls them"),
     need("memories", "", "two days when")),
    ("How many homes had no power after Berta, and how many batteries have we ordered?",
     need("news", "", "12,000 homes"),
     need("workspace", "", "orty new ones")),
    ("What do pensioners pay for heating at most, and who approves orders above 2,000 euros?",
     need("news", "", "95 euros"),
     need("records", "", "finance lead")),
    ("How long are alarm logs kept, and how many gauges does a warning need?",
     need("records", "", "five years"),
     need("workspace", "", "needs two gauges")),
    ("Until when can I use carried-over holiday, and on which day do I go to Drossel?",
     need("records", "", "end of March"),
     need("memories", "", "Thursday")),
    ("What share of the pumps' need can tidal power cover, and by how much did the Nordlink fault raise prices?",
     need("pages", "", "about a third"),
     need("news", "", "percent")),
    ("Which ports do carriers use instead of Northquay, and what should the board buy in 2027?",
     need("news", "", "Gdynia"),
     need("pages", "", "four more turbines|Four more tidal turbines")),
    ("What happened to the second turbine in September, and who repairs pumps?",
     need("pages", "", "seal of the second turbine"),
     need("records", "", "Viktor")),
    ("Who hands out the key of the bicycle shed, and whose task is the list of divers?",
     need("records", "", "Marta"),
     need("workspace", "", "list of divers")),
    ("How is a fouled float cleaned, and what was wrong with the gauge in Drossel after the power cut in August?",
     need("records", "", "soft brush"),
     need("memories", "", "three centimetres")),
    ("Сколько крон стоил приливный пилот, и сколько минут занимает калибровка поплавка?",
     need("pages", "", "2.6 million crowns"),
     need("records", "", "wenty minutes|двадцать минут|20 минут")),
    ("На сколько ошибался датчик в Дросселе после отключения света, и кто лидирует на выборах мэра Велльмара?",
     need("memories", "", "three centimetres"),
     need("news", "", "41.2|41,2")),
    ("Which release made red alarms quieter, and which bug concerns the clock change?",
     need("records", "", "three in a row"),
     need("workspace", "", "hour off")),
    ("Who mediates in the port talks, and was the date of the launch in Drossel changed?",
     need("news", "", "former judge"),
     need("workspace", "", "launch in Drossel stays")),
    ("What does a kilowatt hour of the pilot cost, and what happened to power prices when the wind picked up?",
     need("pages", "", "0.41 crowns"),
     need("news", "", "7 percent")),
)  # fmt: skip
