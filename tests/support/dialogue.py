"""What people tell an assistant: facts with questions about them, corrections, and other statements around them."""

from __future__ import annotations

FACTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "My daughter Mia is allergic to peanuts.",
        (
            "What is Mia allergic to?",
            "Which food must my daughter avoid?",
            "Does my daughter have any allergies?",
            "Is there something Mia cannot eat?",
            "What should I not put into Mia's lunch box?",
        ),
    ),
    (
        "Our cottage in Hardanger has a blue door and the key is under the flower pot.",
        (
            "Where is the key of the cottage?",
            "Where did I hide the key to our cottage?",
            "What colour is the door of the cottage?",
            "How do I get into the cottage in Hardanger?",
            "Which flower pot matters at the cottage?",
        ),
    ),
    (
        "I take the 7:40 train to Drammen every weekday.",
        (
            "Which train do I take to Drammen?",
            "When does my train leave on weekdays?",
            "How do I get to Drammen in the morning?",
            "What is my usual train?",
            "At what time do I commute to Drammen?",
        ),
    ),
    (
        "My brother-in-law Henrik restores old wooden boats for a living.",
        (
            "What does Henrik do for a living?",
            "What is my brother-in-law's job?",
            "Who in my family restores boats?",
            "What kind of boats does Henrik work on?",
            "Whom should I ask about an old wooden boat?",
        ),
    ),
    (
        "The alarm code of the office is 4471.",
        (
            "What is the alarm code of the office?",
            "How do I switch off the office alarm?",
            "Which code does the office alarm need?",
            "Do you remember the code for the alarm?",
            "What is the number for the alarm at work?",
        ),
    ),
    (
        "Моя бабушка родилась в Вологде в 1938 году.",
        (
            "Где родилась моя бабушка?",
            "В каком году родилась бабушка?",
            "Откуда родом моя бабушка?",
            "Какой город связан с рождением бабушки?",
            "Когда родилась бабушка?",
        ),
    ),
    (
        "По вторникам я хожу в бассейн на Лесной улице.",
        (
            "Когда я хожу в бассейн?",
            "По каким дням у меня бассейн?",
            "На какой улице мой бассейн?",
            "Куда я хожу по вторникам?",
            "Где находится бассейн, в который я хожу?",
        ),
    ),
    (
        "Our landlord Mr. Lindqvist wants the rent on the third of each month.",
        (
            "When is the rent due?",
            "What is the name of our landlord?",
            "On which day does the landlord want the rent?",
            "Who is our landlord?",
            "When do I have to pay Mr. Lindqvist?",
        ),
    ),
    (
        "I am reading a novel about lighthouse keepers by Jazmina Barrera.",
        (
            "What am I reading at the moment?",
            "Who wrote the book about lighthouses that I read?",
            "What is my novel about?",
            "Which author am I reading?",
            "Do you know the book I am reading?",
        ),
    ),
    (
        "Моя машина, серая Тойота, стоит на подземной парковке на месте 214.",
        (
            "Где стоит моя машина?",
            "На каком месте парковки моя машина?",
            "Какого цвета моя машина?",
            "Какая у меня машина?",
            "Где я припарковал Тойоту?",
        ),
    ),
)
"""A fact, and questions that ask for it in other words."""

_TOPICS = (
    ("The {} in hall {} was repaired by the night shift.", ("pump", "fan", "lift", "boiler", "printer")),
    ("Colleague number {1} prefers {0} for lunch.", ("soup", "salad", "pasta", "sushi", "bread")),
    ("We moved the {} to storage room {}.", ("chairs", "screens", "folders", "lamps", "plants")),
    ("The report about {} has {} pages.", ("sales", "hiring", "energy", "travel", "training")),
    ("In the garden the {} in bed {} are growing well.", ("tomatoes", "beans", "roses", "herbs", "carrots")),
    ("Я отнёс {} на склад номер {}.", ("ящики", "книги", "инструменты", "доски", "краски")),
    ("На складе {1} закончились {0}.", ("гвозди", "лампы", "перчатки", "батарейки", "кисти")),
    ("The museum shows {} in room {}.", ("coins", "maps", "clocks", "masks", "vases")),
)

OTHER_STATEMENTS: tuple[str, ...] = tuple(
    form.format(thing, 10 * at + number)
    for at, (form, things) in enumerate(_TOPICS)
    for number in range(5)
    for thing in things
)
"""Two hundred statements about other things."""

CORRECTIONS: tuple[tuple[str, str, str, str], ...] = (
    ("My flight to Rome is on Tuesday.", "My flight to Rome is on Thursday.", "When is my flight to Rome?", "Thursday"),
    ("My sister Anna lives in Oslo.", "My sister Anna moved to Bergen.", "Where does my sister Anna live?", "Bergen"),
    ("I work at Siemens.", "Actually, I work at Bosch now.", "Where do I work?", "Bosch"),
    ("My favourite colour is blue.", "My favourite colour is green.", "What is my favourite colour?", "green"),
    ("The meeting with Boris is at 5 pm.", "The meeting with Boris is at 6 pm.", "When do I meet Boris?", "6 pm"),
    ("The gate code is tulip42.", "The gate code is now rose77.", "What is the gate code?", "rose77"),
    ("I drink coffee every morning.", "I no longer drink coffee, only tea.", "What do I drink in the morning?", "tea"),
    ("I live in Berlin.", "I moved to Hamburg last week.", "Where do I live?", "Hamburg"),
    ("My daughter is 6 years old.", "My daughter is 7 years old.", "How old is my daughter?", "7"),
    ("My dog is called Rex.", "My dog is called Max.", "What is my dog called?", "Max"),
    ("The kitchen budget is 5000 euros.", "The kitchen budget is 7000 euros.", "What is the kitchen budget?", "7000"),
    ("I am allergic to nuts.", "It turns out I am not allergic to nuts but to milk.", "What am I allergic to?", "milk"),
    ("Our holiday is in July.", "Our holiday is in August.", "When is our holiday?", "August"),
    ("My dentist is Dr. Hansen.", "My dentist is Dr. Moen.", "Who is my dentist?", "Moen"),
    ("The party starts at eight.", "The party starts at nine.", "When does the party start?", "nine"),
    ("My locker number is 101.", "My locker number is 202.", "What is my locker number?", "202"),
    ("The rent is 900 euros.", "The rent is 950 euros.", "How much is the rent?", "950"),
    ("My boss is Martin.", "My boss is Katrin.", "Who is my boss?", "Katrin"),
    ("We meet in room 12.", "Correction: we meet in room 14.", "In which room do we meet?", "14"),
    ("The deadline is Friday.", "The deadline was moved to Monday.", "When is the deadline?", "Monday"),
    ("Моя сестра живёт в Омске.", "Моя сестра переехала в Томск.", "Где живёт моя сестра?", "Томск"),
    ("Мой рейс во вторник.", "Мой рейс в четверг.", "Когда мой рейс?", "четверг"),
    ("Я работаю в Яндексе.", "Теперь я работаю в Сбере.", "Где я работаю?", "Сбере"),
    ("Мой любимый цвет синий.", "Мой любимый цвет зелёный.", "Какой мой любимый цвет?", "зелёный"),
    ("Встреча с Борисом в 17:00.", "Встреча с Борисом перенесена на 18:00.", "Когда встреча с Борисом?", "18:00"),
    ("Мою собаку зовут Рекс.", "Мою собаку зовут Макс.", "Как зовут мою собаку?", "Макс"),
    ("Наш отпуск в июле.", "Наш отпуск в августе.", "Когда наш отпуск?", "августе"),
    ("Пароль от почты тюльпан42.", "Пароль от почты теперь роза77.", "Какой пароль от почты?", "роза77"),
    ("Моему сыну 6 лет.", "Моему сыну 7 лет.", "Сколько лет моему сыну?", "7"),
    ("Бюджет ремонта 500 тысяч.", "Бюджет ремонта 700 тысяч.", "Какой бюджет ремонта?", "700"),
    ("Я пью кофе по утрам.", "Я больше не пью кофе, только чай.", "Что я пью по утрам?", "чай"),
    ("Мой стоматолог доктор Петров.", "Мой стоматолог доктор Орлов.", "Кто мой стоматолог?", "Орлов"),
    ("Собрание в пятницу.", "Собрание перенесли на понедельник.", "Когда собрание?", "понедельник"),
    ("Мой начальник Сергей.", "Мой начальник теперь Олег.", "Кто мой начальник?", "Олег"),
    ("Аренда стоит 40 тысяч.", "Аренда стоит 45 тысяч.", "Сколько стоит аренда?", "45"),
    ("Я живу в Казани.", "Я переехал в Пермь.", "Где я живу?", "Пермь"),
    ("Поезд отходит в девять.", "Поезд отходит в десять.", "Когда отходит поезд?", "десять"),
    ("Мы встречаемся в кабинете 12.", "Точнее, мы встречаемся в кабинете 14.", "Где мы встречаемся?", "14"),
    ("Номер моего шкафчика 101.", "Номер моего шкафчика 202.", "Какой номер моего шкафчика?", "202"),
    ("Срок сдачи проекта в мае.", "Срок сдачи проекта в июне.", "Когда срок сдачи проекта?", "июне"),
)
"""A statement, what corrects it, a question about it, and the value that the answer needs."""

INDEPENDENT: tuple[tuple[str, str], ...] = (
    ("My daughter Mia is 5.", "My daughter Lea is 7."),
    ("I like tea.", "I like coffee."),
    ("I met Anna on Monday.", "I met Boris on Monday."),
    ("My sister's phone is 123.", "My brother's phone is 456."),
    ("I live in Berlin.", "I work in Hamburg."),
    ("My cat is called Tom.", "My dog is called Rex."),
    ("I visited Rome in May.", "I visited Paris in May."),
    ("The ferry to Bergen leaves at nine.", "The ferry to Oslo leaves at ten."),
    ("I have a meeting with Anna on Monday.", "I have a meeting with Boris on Tuesday."),
    ("My son plays football.", "My son plays chess now."),
    ("My brother Tom lives in Rome.", "My brother Sam lives in Rome."),
    ("Мой брат живёт в Омске.", "Моя сестра живёт в Томске."),
    ("Я купил хлеб.", "Я купил молоко."),
    ("У меня есть кот Барсик.", "У меня есть собака Жучка."),
    ("Я люблю чай.", "Я люблю кофе."),
    ("Встреча с Анной во вторник.", "Встреча с Борисом в среду."),
)
"""Pairs of statements that are both true."""

CONVERSATION: tuple[tuple[str, str, str | None], ...] = (
    ("one", "Hi there!", None),
    ("one", "I'm Katrin, and I run a small pottery studio in Ghent.", None),
    ("one", "My studio opens at ten on weekdays.", None),
    ("one", "I have two children: Bram is nine and Lotte is six.", None),
    ("one", "Could you suggest a name for a newsletter?", None),
    ("one", "Our dog is called Pixel.", None),
    ("one", "What is our dog called?", "Pixel"),
    ("one", "The kiln broke on Saturday and the repair costs 640 euros.", None),
    ("one", "How much does the repair of the kiln cost?", "640"),
    ("one", "Lotte is allergic to strawberries.", None),
    ("one", "My glaze supplier is a company called Terrasol.", None),
    ("one", "Thanks!", None),
    ("one", "I am planning a trip to Lisbon in October.", None),
    ("one", "Where do I want to travel?", "Lisbon"),
    ("one", "My landlord wants to raise the rent of the studio.", None),
    ("one", "Bram plays the trumpet in the school orchestra.", None),
    ("one", "Which instrument does Bram play?", "trumpet"),
    ("one", "I usually drink rooibos in the afternoon.", None),
    ("one", "The exhibition at the town hall is on 3 June.", None),
    ("one", "When is the exhibition?", "3 June"),
    ("one", "Actually, the exhibition at the town hall is on 10 June.", None),
    ("one", "When is the exhibition at the town hall?", "10 June"),
    ("one", "My sister Veerle is a dentist.", None),
    ("one", "What does my sister do for a living?", "dentist"),
    ("one", "Translate 'clay' into French.", None),
    ("one", "I sold eleven bowls at the market last week.", None),
    ("one", "My van is parked behind the library.", None),
    ("one", "Which colour does my cat have?", "No earlier message mentions this"),
    ("one", "My accountant is called Pieter Maes.", None),
    ("one", "Good night!", None),
    ("two", "Привет!", None),
    ("two", "Я вернулась из поездки.", None),
    ("two", "У меня новая ученица, её зовут Олеся.", None),
    ("two", "Олеся приходит по четвергам.", None),
    ("two", "Когда приходит Олеся?", "четвергам"),
    ("two", "Мой врач велел мне меньше пить кофе.", None),
    ("two", "Как зовут мою собаку?", "Pixel"),
    ("two", "В мастерской протекает крыша.", None),
    ("two", "Я заказала двадцать килограммов белой глины.", None),
    ("two", "Сколько глины я заказала?", "двадцать"),
    ("two", "Спасибо большое!", None),
    ("two", "На что у Лотте аллергия?", "strawberries"),
    ("two", "Моя соседка Ирина держит пчёл.", None),
    ("two", "Кто держит пчёл?", "Ирина"),
    ("two", "Придумай подпись для вазы.", None),
    ("two", "Выставка прошла хорошо, купили семь ваз.", None),
    ("two", "Теперь Олеся приходит по пятницам.", None),
    ("two", "По каким дням приходит Олеся?", "пятницам"),
    ("two", "Let me switch to English again.", None),
    ("two", "Who supplies my glaze?", "Terrasol"),
    ("two", "My new kiln arrives on Tuesday.", None),
    ("two", "I moved my van to the garage in Nieuwstraat.", None),
    ("two", "Where is my van?", "Nieuwstraat"),
    ("two", "What is the name of my accountant?", "Pieter Maes"),
    ("two", "Wonderful.", None),
    ("two", "The rent will be 900 euros from May on.", None),
    ("two", "I am reading a book about Japanese glazes.", None),
    ("two", "When does my studio open?", "ten"),
    ("two", "What does my neighbour Irina keep?", "пчёл"),
    ("two", "Bye!", None),
)
"""Sixty messages of two sessions in two languages; a question has what its answer's first line contains."""
