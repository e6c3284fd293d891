"""Owns the questions that checkpoints are compared on: subjects neither trained on nor in the benchmark suites."""

from __future__ import annotations

HELD_OUT: tuple[str, ...] = tuple(
    """
Can you explain how a sundial tells the time?
My houseboat smells of diesel. How can I find the leak?
What is the point of a semicolon tattoo?
How do truffle dogs get trained?
Which musical instrument should my daughter start with, the harp or the trombone?
What happens inside a kiln?
Is it safe to eat snow?
How do I stop my glasses from fogging up?
Who built the moai on Easter Island, and why?
What does it take to become a falconer?
Why do flamingos stand on one leg?
Give me a plan for clearing out my late uncle's workshop.
How do night markets in Taiwan work?
What is kombucha and how is it fermented?
Tell me three things about the Beaufort scale.
How are crossword puzzles made?
Should I repair my accordion myself?
Explain what a hedge fund does.
How does noise-cancelling work in headphones?
What is the difference between a crocodile and an alligator?
My toddler refuses to wear mittens. Any ideas?
What should I pack for a week on a sheep farm in Wales?
Why do onions of the sea, I mean sea urchins, have spines?
Suggest a menu for a vegan wedding in October.
Write a Python function that finds the intersection point of two line segments.
Write a Python class for a ring buffer with a fixed capacity.
Write a JavaScript function that deep-clones an object.
Write a Python function that encodes text with run-length encoding.
Write a Python script that renders a Mandelbrot set as text.
Implement a trie with insert and search in Java.
Write a Rust function that reads a number from standard input and handles errors.
Write a Python function that computes the moving average of a series.
Write a C program that reverses the bits of a byte.
Write a TypeScript type for a tree of menu items and a function that prints it.
Write a Python function that validates a credit card number with the Luhn algorithm.
Write a Python function that solves a sudoku by backtracking.
Write a Go program with a worker pool that hashes files.
Write a Python context manager that changes the working directory.
Write an HTML form with a date picker and a submit button.
Write a Python function that splits a bill between guests with a tip.
Write a regular expression that matches a phone number, and explain it.
Write a Python class that models an elevator in a ten-storey building.
Write an SQL query that finds gaps in a sequence of ticket numbers.
Write a Python function that estimates pi with random points.
Write a short essay about the smell of rain.
Write a story about a cartographer who draws a river that does not exist.
Describe a rooftop pigeon loft in the morning.
Write a poem about a broken elevator.
Write a letter from a mountaineer at base camp.
Write a newspaper column against leaf blowers.
Write a story about a violin maker's last instrument.
Write the first paragraph of a thriller set in an auction house.
Write a eulogy for a lighthouse dog.
Write a fable about a heron and a mirror.
Write a speech for the retirement of a bus mechanic.
Write an advertisement for a museum of forgotten umbrellas.
Write a description of a monsoon arriving over a tea plantation.
Write a story in which a tattoo artist refuses a customer.
Write a piece of travel writing about a ferry to the Faroe Islands.
Write a scene between a locksmith and a man who has lost everything.
Write about a piano that nobody is allowed to play.
Write a legend about the origin of salt flats.
Write an essay on the pleasures of eavesdropping.
Write a children's story about a hedgehog who collects bottle caps.
""".strip().splitlines()
)
