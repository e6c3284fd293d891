"""Owns how training prompts ask: sentences with places for subjects, one a line; `prompts` fills them."""

from __future__ import annotations


def _lines(text: str) -> tuple[str, ...]:
    return tuple(text.strip().splitlines())


ASK = _lines("""
What is the most important thing to know about {s}?
Explain {s} in simple terms.
Tell me about {s}.
Why does {s} matter?
How did {s} come about?
What are common misconceptions about {s}?
Explain {s} to a five-year-old.
Give me a short introduction to {s}.
How has {s} changed over the last century?
What would happen if there were no {s}?
I know nothing about {s}. Where should I start?
What do experts disagree about when it comes to {s}?
Can you describe {s} in two or three sentences?
What is the history of {s}?
What are some surprising facts about {s}?
How do people usually learn about {s}?
What questions should I ask about {s}?
Is {s} worth my time?
hi, can you help me understand {s}?
What makes {s} interesting?
Summarise what is known about {s} in one paragraph.
What role does {s} play in everyday life?
How does {s} affect people?
What is a good analogy for {s}?
Who should care about {s}, and why?
""")

LIST = _lines("""
List five facts about {s}.
Give me ten ideas related to {s}.
What are the pros and cons of {s}?
Write a bulleted list of tips about {s}.
Name three books someone interested in {s} might enjoy.
Give me a checklist for dealing with {s}.
What are the main kinds of {s}?
List the steps for getting started with {s}.
Give me five quiz questions about {s} with answers.
Make a table of key terms about {s} and what they mean.
List seven words that are often used when talking about {s}.
Create a one-week plan for learning about {s}.
What are the top mistakes people make with {s}?
Give me three reasons to like {s} and three to dislike it.
""")

PROSE = _lines("""
Write a short essay about {s}.
Write a paragraph about {s} for a school report.
Write a blog post about {s}.
Write a news article about {s}.
Write the opening of a documentary about {s}.
Describe {s} using vivid language.
Write a persuasive speech about {s}.
Write a product description inspired by {s}.
Write a diary entry about {s}.
Write a poem about {s}.
Write a haiku about {s}.
Write a song about {s}.
Write a limerick about {s}.
Write a scene set in a place known for {s}.
Write a letter to a friend about {s}.
Write a short speech about {s}.
Write a social media post about {s}.
Write a fable about {s} with a moral.
Write a dialogue between two people about {s}.
Write a critical review of a book about {s}.
Write an encyclopedia entry about {s}.
Write a joke about {s}.
""")

PAIR = _lines("""
Compare {s} and {t}.
What do {s} and {t} have in common?
Which is more useful, {s} or {t}?
Write a story that involves both {s} and {t}.
How are {s} and {t} related?
Explain the difference between {s} and {t}.
Invent something that combines {s} and {t}.
Write a conversation in which {s} and {t} argue.
""")

STORY = _lines("""
Write a story about {h}.
Write a short story about {h} and {s}.
Tell me a bedtime story about {h}.
Write the first chapter of a novel about {h}.
Continue this story: Once upon a time there was {h} who dreamed of {s}.
Write a dialogue between {h} and {g}.
Write a sad story about {h}.
Write a funny story about {h} who discovers {s}.
Describe a day in the life of {h}.
Write a mystery in which {h} meets {g}.
Write a letter from {h} to {g}.
""")

CODE = _lines("""
Write a {l} function that {c}.
Write a {l} program that {c}.
Show me {l} code that {c}, with comments.
How do I write {l} code that {c}?
Write a {l} class that {c}.
Write a {l} script that {c} and explain how it works.
Write a {l} function that {c} and add a few tests.
Give me a short {l} example that {c}.
Refactor a {l} function that {c} so that it is easier to read.
Explain step by step how a {l} program that {c} works.
""")

TECH = _lines("""
Write an SQL query that {q}.
Write an SQL query that {q} and explain it.
What is the time complexity of code that {c}?
Write pseudocode for an algorithm that {c}.
Write a docstring for a {l} function that {c}.
Write an HTML page about {s}.
Write some CSS for a page about {s}.
Write a JSON document that describes {s}.
Write a README for a {l} project that {c}.
What should I test in a {l} function that {c}?
""")

REWRITE = _lines("""
Correct the grammar: {x}.
Rewrite this more formally: {x}.
Rewrite this more concisely: {x}.
Make this friendlier: {x}.
Rewrite this sentence in the passive voice: {x}.
Explain what this sentence means: {x}.
Continue this text: {x}.
Write three variations of this sentence: {x}.
Turn this into a question: {x}.
Write a headline for this: {x}.
""")

MAIL = _lines("""
Write an email {e}.
Write a short and polite message {e}.
Write a formal letter {e}.
Draft an email to {n} {e}.
Help me write a message {e}. Keep it under 100 words.
Write a reply to an email {e}.
Write a phone script for {e}.
""")

MATHS = _lines("""
{n} has {a} {o} and gives {b} of them to {m}. How many {o} does {n} have left?
{n} buys {a} {o} for {b} dollars each. How much does {n} pay in total?
What is {a} plus {b}?
What is {a} times {b}?
Solve for x: {b}x + {a} = {d}.
What is {b} percent of {d}?
If {a} {o} cost {d} dollars, how much does one cost?
A train travels {d} kilometres in {b} hours. What is its average speed?
{n} is {a} years old and {m} is {b} years older. How old is {m}?
Find the area of a rectangle that is {a} metres long and {b} metres wide.
Write a word problem about {o} and solve it.
{n} and {m} share {d} {o} equally. How many does each get?
Simplify the fraction {b}/{a}.
What comes next: {b}, {a}, {d}?
""")

TALK = _lines("""
Hello! How are you today?
My name is {n}. What can you do?
I feel a bit down today.
Give me advice: my friend {n} is upset with me.
I can't decide between {s} and {t} as a hobby. Help me choose.
Act as a teacher and give me a lesson on {s}.
Pretend you are {h}. Introduce yourself.
Let's role-play: you are {h} and I ask you about {s}.
What should I cook tonight with {o}?
Recommend something to do this weekend near {s}.
Ask me three questions about {s}.
What is your opinion on {s}?
Interview {h} about {s}.
I have to give a talk about {s} tomorrow. Help me prepare.
My boss {n} wants a report on {s}. What should be in it?
Help me plan a party with the theme {s}.
How can I explain {s} to my grandmother?
{n} says that {s} is useless. How do I respond?
Translate a simple sentence about {s} into French.
Define {s}.
What is the plural of {o}?
Who invented {s}?
Where can I see {s}?
Classify {s}, {t} and {h} into living and non-living things.
Extract the names from this text: {n} met {m} in the park.
""")
