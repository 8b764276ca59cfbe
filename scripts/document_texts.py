"""What the sample documents say; all of it is invented."""

from __future__ import annotations

TIDAL = (
    ("h1", "Northquay tidal power: results of the pilot"),
    ("h1", "Summary"),
    (
        "p",
        (
            "Between March and November 2025 Northquay Harbours ran two tidal turbines in the narrows of Senn. "
            "They delivered 412 megawatt hours, eight per cent more than planned. The pilot shows that tidal power can "
            "cover about a third of what the pumping stations of the harbour need, at hours that are known years ahead."
        ),
    ),
    ("h1", "1 Why tides"),
    (
        "p",
        (
            "The pumping stations are the largest consumer of the harbour. They run at high water, when the gates are "
            "shut, and that is also when the current in the narrows is strongest. Wind and sun give more energy over a "
            "year, but nobody can tell a week ahead when. The tide tables tell it for decades."
        ),
    ),
    (
        "p",
        (
            "A second reason is the grid. The line to the outer quay is old and carries at most 900 kilowatts. Power "
            "that is made beside the pumps does not need the line, so that its replacement, estimated at 3.1 million "
            "crowns, can wait for at least six years."
        ),
    ),
    ("h1", "2 The turbines"),
    (
        "p",
        (
            "Both turbines are of the same make: three blades, five metres across, fixed to the sea bed at a depth of "
            "eleven metres. Each is rated at 120 kilowatts at a current of 2.4 metres per second. Below 0.8 metres per "
            "second they stand still. They turn slowly enough for fish to avoid them."
        ),
    ),
    ("h2", "2.1 Maintenance"),
    (
        "p",
        (
            "The blades were cleaned twice. Mussels had cost up to five per cent of the output before the first "
            "cleaning in July. A seal of the second turbine leaked in September, and it stood still for nine days "
            "until a diver had replaced the seal. The divers of the harbour can do this work themselves."
        ),
    ),
    ("h1", "3 What was measured"),
    (
        "p",
        (
            "The output was read every ten minutes. The best month was April with 61 megawatt hours; the weakest was "
            "August with 38, because of the neap tides and of mussels. On average a turbine worked 15.2 hours a day. "
            "The noise at the nearest house could not be told from that of the waves."
        ),
    ),
    (
        "p",
        (
            "Porpoises were counted from the pier by volunteers. In the first month there were fewer of them than in "
            "the years before, from May on there were as many. No animal was found hurt."
        ),
    ),
    ("h1", "4 Costs"),
    (
        "p",
        (
            "The pilot cost 2.6 million crowns: 1.7 million for the turbines, 0.6 million for the foundations and the "
            "cable, 0.3 million for planning and measuring. With a life of twenty years a kilowatt hour costs 0.41 "
            "crowns, against 0.52 crowns from the grid in 2025. At last year's prices the turbines are paid back after "
            "eleven years."
        ),
    ),
    ("h1", "5 Recommendation"),
    (
        "p",
        (
            "The board is advised to buy four more turbines in 2027 and to build a battery of 500 kilowatt hours at "
            "pumping station three. Blades should be coated against mussels before they are put under water. The old "
            "line to the outer quay should be kept, and looked at again in 2031."
        ),
    ),
)

FINANCE = (
    ("h1", "Figures of 2025"),
    ("h2", "Revenue by harbour"),
    (
        "p",
        (
            "Revenue grew by 6.4 per cent to 48.3 million crowns. Northquay contributed most of the growth; Drossel "
            "lost a ferry line in June and made it up with storage fees."
        ),
    ),
    ("h2", "Revenue by quarter"),
    (
        "p",
        (
            "The third quarter was the strongest, as every year, because of cruise ships. The second suffered from the "
            "strike of the dockers, which cost about 0.9 million crowns."
        ),
    ),
    ("h2", "Results and outlook"),
    (
        "p",
        (
            "Operating costs were 39.8 million crowns, of which wages made up 21.2 million and energy 4.4 million. The "
            "operating result was 8.5 million crowns. For 2026 the board expects revenue of 50 million crowns and an "
            "operating result of 9 million, provided that the new crane is delivered by May."
        ),
    ),
)

HARBOURS = (
    ("Harbour", "2024", "2025", "Change"),
    ("Northquay", "29.1", "31.6", "+8.6 %"),
    ("Drossel", "9.8", "9.9", "+1.0 %"),
    ("Senn", "6.5", "6.8", "+4.6 %"),
    ("Total", "45.4", "48.3", "+6.4 %"),
)

QUARTERS = (
    ("Quarter", "Revenue", "Costs", "Result"),
    ("First", "11.2", "9.6", "1.6"),
    ("Second", "10.9", "9.9", "1.0"),
    ("Third", "14.1", "10.4", "3.7"),
    ("Fourth", "12.1", "9.9", "2.2"),
)

RUSSIAN = (
    ("h1", "Отчёт о состоянии насосов за 2025 год"),
    (
        "p",
        (
            "Отчёт составлен службой эксплуатации порта Нордкей. Осмотрены все девять насосных станций; наработка "
            "насосов считана с приборов 15 января 2026 года."
        ),
    ),
    ("h2", "Наработка и ремонт"),
    (
        "p",
        (
            "Больше всего работала третья станция: зимой её насосы не выключались одиннадцать суток подряд. "
            "На второй станции заменён подшипник, на пятой стоит запасной двигатель."
        ),
    ),
    ("h2", "Расход электроэнергии"),
    (
        "p",
        (
            "За год насосы израсходовали 1240 мегаватт-часов, на четыре процента меньше, чем в 2024 году. Экономию "
            "дали новые частотные преобразователи на первой и четвёртой станциях."
        ),
    ),
    ("h2", "Что нужно сделать в 2026 году"),
    (
        "p",
        (
            "До осенних штормов нужно купить два уплотнения для третьей станции и очистить водозабор пятой. "
            "Стоимость работ оценена в 380 тысяч крон. Ответственный: начальник смены Орлова."
        ),
    ),
)

PUMPS = (
    ("Станция", "Часы", "Ремонты"),
    ("Первая", "2310", "1"),
    ("Вторая", "2875", "3"),
    ("Третья", "4120", "2"),
    ("Четвёртая", "1990", "0"),
    ("Пятая", "2540", "4"),
)

LETTER = (
    (34, "Harbour Mutual Insurance"),
    (24, "Claims department, Vellmar"),
    (24, ""),
    (24, "12 January 2026"),
    (24, ""),
    (30, "Your claim after the storm of 3 December 2025"),
    (24, ""),
    (24, "Dear Northquay Harbours,"),
    (24, ""),
    (24, "our assessor visited the outer quay on 18 December. We accept"),
    (24, "the damage to the crane rail and to the lamp posts and will pay"),
    (24, "740,000 crowns within thirty days."),
    (24, ""),
    (24, "We cannot accept the damage to pumping station five. The water"),
    (24, "came in through a hatch that was left open, as your own log of"),
    (24, "the night says. Clause 14 of the policy asks for all hatches to"),
    (24, "be shut when a storm warning is given."),
    (24, ""),
    (24, "You may object to this decision until 12 March 2026."),
    (24, ""),
    (24, "Yours sincerely,"),
    (24, "R. Halvorsen, head of claims"),
)

PLAN = (
    ("h1", "Maintenance plan 2026"),
    ("p", "This plan covers the pumping stations, the gates and the cranes of Northquay. It replaces that of 2024."),
    ("h2", "Pumping stations"),
    (
        "p",
        (
            "Every pump is inspected each quarter. Bearings are greased after 500 hours and replaced after "
            "12,000 hours. A pump whose vibration exceeds 7 millimetres per second is taken out of service the "
            "same day."
        ),
    ),
    ("h2", "Inspections"),
    (
        "table",
        (
            "Part | How often | Who\nPumps | every quarter | pump crew\nGates | every spring tide | gate keepers\n"
            "Cranes | every month | crane crew\nBackup generator | every Monday | shift leader"
        ),
    ),
    ("break", ""),
    ("h2", "Storm season"),
    (
        "p",
        (
            "From October to March two people stay at the harbour every night. When a warning of level three is given, "
            "all hatches are shut and signed for, the gates are tested and the backup generator is run for ten minutes."
        ),
    ),
    ("h2", "Spare parts"),
    (
        "p",
        (
            "Two seals for station three and one bearing set for station two are ordered in May. Spare parts worth "
            "more than 50,000 crowns need the signature of the technical director, Ilse Brandt."
        ),
    ),
)

SLIDES = (
    ("Briefing for the board", ["Northquay Harbours", "March 2026"], ""),
    (
        "Decisions needed",
        [
            "Four more tidal turbines in 2027: 3.9 million crowns",
            "A new crane for the outer quay: 6.2 million crowns, delivery in May",
            "Objection to the insurer's decision on station five, until 12 March",
        ],
        "The technical director recommends the turbines first: the crane is already paid for by the credit of 2025.",
    ),
    (
        "Risks",
        ["Late delivery of the crane", "A second strike of the dockers", "The old power line to the outer quay"],
        "",
    ),
)
