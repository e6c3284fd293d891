"""Owns the subjects that training prompts are about; how they are asked is `prompts`' business.

None of them is a subject of the benchmark suites (`tune/suites`), which measure unseen topics.
"""

from __future__ import annotations


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.replace("\n", " ").split(";") if part.strip())


SUBJECTS = _split("""
photosynthesis; black holes; the water cycle; earthquakes; the immune system; plate tectonics; gravity;
magnetism; friction; the periodic table; chemical bonds; acids and bases; enzymes; DNA; evolution; natural
selection; ecosystems; food chains; pollination; migration of birds; whales; octopuses; spiders; ants;
butterflies; wolves; elephants; penguins; dolphins; sharks; owls; snakes; frogs; horses; cats; dogs;
goldfish; parrots; dinosaurs; fossils; rainforests; deserts; the Arctic; wetlands; mangroves; mountains;
rivers; lakes; oceans; islands; caves; hurricanes; tornadoes; thunderstorms; snow; rainbows; clouds;
climate change; the greenhouse effect; recycling; plastic pollution; renewable energy; solar panels; wind
turbines; nuclear power; batteries; electric cars; hydrogen fuel; bridges; skyscrapers; dams; tunnels;
railways; airplanes; helicopters; rockets; satellites; space stations; the Moon; Mars; Jupiter; Saturn;
the Sun; stars; galaxies; the Big Bang; telescopes; microscopes; lasers; radar; X-rays; magnetic resonance
imaging; antibiotics; blood pressure; the heart; lungs; kidneys; the brain; memory; sleep; dreams; stress;
anxiety; meditation; yoga; nutrition; vitamins; protein; fibre; sugar; salt; hydration; exercise; strength
training; stretching; running shoes; swimming; cycling; football; basketball; tennis; cricket; baseball;
golf; skiing; surfing; climbing; hiking; camping; fishing; sailing; gardening; tomatoes; roses; herbs;
fruit trees; lawns; indoor plants; soil; fertiliser; irrigation; farming; wheat; rice; maize; potatoes;
apples; bananas; oranges; grapes; olives; cheese; yoghurt; butter; eggs; pasta; pizza; soup; salad; curry;
tacos; sushi; pancakes; cookies; cakes; ice cream; tea; juice; wine; spices; garlic; onions; mushrooms;
beans; nuts; honey; vinegar; grilling; baking; meal planning; kitchen knives; cast iron pans; dishwashers;
refrigerators; vacuum cleaners; laundry; home cleaning; painting a room; furniture; carpets; curtains;
lighting; insulation; plumbing; electricity at home; door locks; smart homes; smoke detectors; budgeting;
saving money; credit cards; mortgages; taxes; insurance; investing; stock markets; inflation; interest
rates; banks; cryptocurrency; supply and demand; trade; unemployment; entrepreneurship; marketing;
advertising; branding; sales; customer service; project management; leadership; teamwork; meetings;
negotiation; public speaking; job interviews; resumes; cover letters; remote work; time management;
procrastination; motivation; goal setting; habits; note taking; reading; writing; grammar; punctuation;
poetry; novels; short stories; screenplays; journalism; biographies; libraries; museums; theatre; opera;
ballet; jazz; classical music; rock music; hip hop; folk songs; guitars; violins; drums; singing; choirs;
painting; sculpture; photography; film making; animation; cartoons; comics; video games; board games; card
games; puzzles; riddles; magic tricks; knitting; sewing; pottery; woodworking; calligraphy; jewellery;
fashion; shoes; hats; perfume; tattoos; hairstyles; skin care; ancient Egypt; ancient Greece; the Roman
Empire; the Middle Ages; the Renaissance; the Industrial Revolution; the French Revolution; the American
Civil War; the First World War; the Second World War; the Cold War; the Silk Road; the Vikings; the
Aztecs; the Incas; the Ottoman Empire; samurai; pirates; explorers; castles; pyramids; cathedrals; the
Great Wall of China; the Colosseum; the Eiffel Tower; democracy; monarchy; constitutions; elections; human
rights; freedom of speech; courts; police; prisons; the United Nations; the European Union; immigration;
refugees; poverty; education; schools; universities; homework; exams; scholarships; languages; Spanish;
Mandarin; Latin; Arabic; translation; accents; idioms; dictionaries; philosophy; ethics; logic; free will;
happiness; justice; truth; beauty; religion; Buddhism; Christianity; Islam; Hinduism; Judaism; festivals;
weddings; birthdays; New Year; Halloween; Thanksgiving; gifts; friendship; family; parenting; babies;
toddlers; teenagers; grandparents; neighbours; pets; dating; marriage; divorce; grief; loneliness;
kindness; honesty; courage; patience; gratitude; forgiveness; ambition; failure; artificial intelligence;
machine learning; neural networks; robots; self-driving cars; drones; 3D printing; virtual reality;
smartphones; laptops; keyboards; printers; the internet; email; social media; search engines; passwords;
computer viruses; encryption; cloud computing; databases; operating systems; programming languages; open
source software; version control; software testing; web design; spreadsheets; algorithms; quantum
computers; computer chips; fibre optics; Wi-Fi; Bluetooth; GPS; barcodes; clocks; calendars; maps;
compasses; money; paper; glass; steel; concrete; wood; rubber; cotton; silk; leather; gold; diamonds; oil;
coal; natural gas; water purification; sewage; public transport; buses; taxis; bicycles; motorcycles;
ships; submarines; ports; airports; hotels; tourism; travel insurance; packing a suitcase; passports;
Paris; London; New York; Tokyo; Rome; Istanbul; Cairo; Mumbai; Sydney; Rio de Janeiro; Kenya; Canada;
Iceland; Peru; Vietnam; Morocco; Germany; Mexico; Thailand; South Korea; zoos; aquariums; national parks;
beaches; waterfalls; volcano tours; circuses; amusement parks; fireworks; kites; balloons; toys; dolls;
teddy bears; fractions; percentages; algebra; geometry; trigonometry; calculus; statistics; probability;
prime numbers in nature; infinity; zero; the number pi; averages; graphs; units of measurement; Einstein;
Newton; Darwin; Marie Curie; Galileo; Leonardo da Vinci; Shakespeare; Mozart; Beethoven; Picasso; Van
Gogh; Gandhi; Nelson Mandela; Abraham Lincoln; Cleopatra; Napoleon; Julius Caesar; Joan of Arc
""")

HEROES = _split("""
a shy dragon; a retired pilot; a young baker; a lost robot; a clever fox; a lonely giant; a brave mouse; a
forgetful wizard; a curious astronaut; a stubborn donkey; two rival painters; a night watchman; a talking
tree; a schoolteacher in a small village; a detective who is afraid of the dark; a princess who hates
parties; a fisherman's daughter; a blind musician; a time-travelling librarian; a baker's apprentice; an
old clockmaker; a travelling merchant; a runaway train; a ghost who cannot scare anyone; a family of
bears; a girl with a red umbrella; a boy and his kite; a tired superhero; a small town mayor; a doctor on
a distant planet; a farmer and a scarecrow; an inventor whose machines never work; a postman in the
mountains; a cook on a pirate ship; a knight without a sword; a cat that runs a bookshop; a nurse on the
night shift; a young violinist; twins who share a secret; a gardener in winter; a taxi driver; an orphan
in a big city; a snowman in spring; a mermaid who wants to walk; a soldier coming home; a street magician;
a goose that will not fly; a king with no kingdom
""")

CODE_TASKS = _split("""
reverses a string; counts the vowels in a string; finds the largest number in a list; removes duplicates
from a list; sorts a list of dictionaries by a key; computes the factorial of a number; checks whether a
number is even; sums the digits of a number; finds the second largest element of a list; merges two sorted
lists; computes the average of a list; swaps two variables; reads a text file line by line; writes a list
to a file; counts the lines in a file; downloads a web page; parses a date string; computes the difference
between two dates; generates a random password; shuffles a deck of cards; rolls two dice; converts
kilometres to miles; converts a number to binary; converts hexadecimal to decimal; computes the greatest
common divisor; computes the least common multiple; checks if a year is a leap year; finds all files with
a given extension; renames files in a folder; capitalises each word; splits a list into chunks; flattens a
nested list; groups items by their first letter; counts occurrences of each character; multiplies two
matrices; transposes a matrix; computes a dot product; finds the intersection of two lists; computes the
power of a number by repeated squaring; implements bubble sort; implements quick sort; implements
insertion sort; implements binary search; implements a queue using two stacks; implements a linked list;
reverses a linked list; detects a cycle in a linked list; implements a hash table; implements a priority
queue; traverses a graph breadth first; traverses a graph depth first; finds the shortest path in a grid;
solves the towers of Hanoi; generates all permutations of a list; generates all subsets of a set; computes
Pascal's triangle; computes the median of a list; computes the standard deviation; draws a bar chart;
plots a sine wave; reads a configuration file; parses command line arguments; sends an email; logs
messages to a file; measures how long a function takes; retries a failing call; caches results in a
dictionary; reads environment variables; connects to a SQLite database; inserts a row into a table;
updates a record in a table; joins two tables; creates a REST endpoint; validates a form; fetches data
from an API; parses an XML document; reads an Excel sheet; resizes an image; converts an image to
greyscale; computes a checksum; compresses a file; encrypts a message with a key; simulates a coin toss;
simulates a random walk; implements a simple calculator; implements a guessing game; implements rock,
paper, scissors; implements a to-do list; implements a shopping cart; implements a stopwatch; implements a
countdown timer; implements a quiz; models a library of books; models a parking lot; models a student with
grades; models an employee hierarchy; models a vending machine; models a traffic light; prints a
multiplication table; prints a pyramid of stars; prints the calendar of a month; prints a diamond pattern;
counts words in a sentence; finds the longest word in a sentence; removes punctuation from text; replaces
all spaces with dashes; truncates a long text; wraps text to a width; pads a number with zeros; formats a
number as currency; checks if brackets are balanced; evaluates a postfix expression; finds missing numbers
in a sequence; rotates a list by k places; finds pairs that add up to a target; finds the maximum
subarray; computes the edit script of two lists; compares two version numbers; converts snake case to
camel case; builds a dictionary from two lists; inverts a dictionary; merges two dictionaries; filters a
list with a condition; maps a function over a list; zips two lists together; uses a generator to read big
files; uses a context manager; uses a decorator to count calls; runs tasks in threads; runs tasks with
asyncio; watches a folder for changes; scrapes headlines from a page
""")

SQL_TASKS = _split("""
lists all customers from one country; finds the ten most expensive products; counts orders per month;
finds employees without a manager; computes the average salary per department; finds duplicate rows;
deletes old records; adds a column with a default value; creates a table for invoices; joins orders with
customers; finds products never sold; ranks students by score; updates prices by ten percent; finds the
latest login of each user; counts distinct visitors per day
""")

LANGUAGES = ("Python",) * 6 + (
    "JavaScript",
    "JavaScript",
    "Java",
    "C",
    "C++",
    "Go",
    "Rust",
    "TypeScript",
    "Ruby",
    "Bash",
    "PHP",
    "C#",
)

NAMES = _split("""
Anna; Ben; Carlos; Diana; Elena; Farid; Grace; Hugo; Irene; Jack; Kavya; Liam; Mia; Noah; Olga; Pedro;
Quinn; Rosa; Sam; Tara; Umar; Vera; Will; Xin; Yara; Zoe; Maria; Tom; Lucy; David; Sarah; Peter; Emma;
Daniel; Aisha; Kenji; Priya; Omar; Julia; Mark
""")

GOODS = _split("""
apples; pencils; tickets; books; marbles; cookies; chairs; eggs; stickers; bottles; coins; flowers;
shirts; boxes; cards; cups; oranges; balloons; buttons; bricks; candles; notebooks; sandwiches; stamps
from a sheet; toy cars; tomatoes; bags of rice; litres of milk
""")

ERRANDS = _split("""
asking for a day off; thanking a colleague; inviting friends to dinner; complaining about a late delivery;
apologising for missing a meeting; asking a landlord to repair the heating; resigning from a job; asking
for a refund; introducing a new team member; reminding a client of an unpaid invoice; asking a professor
for an extension; announcing a company picnic; welcoming a new neighbour; recommending a former student;
cancelling a subscription; confirming a reservation; asking for a raise; offering help with a project;
congratulating a friend on a new baby; scheduling an interview; asking for feedback on a draft; explaining
a delay; requesting a quote from a supplier; sharing the minutes of a meeting; planning a birthday
surprise; asking about a lost parcel; booking a conference room; declining an invitation politely;
following up after an interview; selling a used car; renting out a flat; organising a charity run; asking
for directions; returning a borrowed book; reporting a broken lift
""")

SENTENCES = _split("""
The meeting was moved because the manager were late; He don't like to eats vegetables; I am writing to
inform you that the shipment has been delayed due to bad weather; She walked slowly through the empty
street and thought about the past; Our product help people to saves time and money; The weather today is
kind of bad and we maybe should stay in; It is what it is and nothing can be done; They was going to the
market when it begun to rain; The results of the study shows that more sleep improve memory; Me and him
went to the shop for buy some bread; The old house at the end of the road has been empty for many years;
We need to think outside the box and leverage our synergies; This phone is good but the battery is not so
good; I has finished my homework yesterday; The children played in the garden until it got dark; Please
find attached the document you asked for; Nobody knew where the key were; The company grew quickly, but it
forgot its first customers; I think that the film was boring and too long; If I would have known, I would
have came earlier; The train leaves at nine and arrives at noon; Her voice was like a bell in the morning;
The bus driver, he was very rude to us; A good leader listens more than they talks; There is many reasons
for learn a new language
""")
