"""Reads prompts: from an argument or standard input, always valid UTF-8 and never empty."""

from __future__ import annotations

import sys

from mtplxd.errors import InvalidArgument


def read_prompt(argument: str | None, raw: bool) -> str:
    """The prompt of a command. `-`, or no argument beside a pipe, reads standard input.

    One line end at the end of standard input is dropped unless `raw`. Raises InvalidArgument.
    """
    if argument is None and sys.stdin.isatty():
        raise InvalidArgument(
            "no prompt", None, "give it as an argument or on standard input", field="prompt"
        )
    if argument in (None, "-"):
        text = utf8(sys.stdin.buffer.read(), "standard input")
        text = text if raw else text.removesuffix("\n")
    else:
        assert argument is not None
        text = checked(argument)
    if not (text if raw else text.strip()):
        raise InvalidArgument("the prompt is empty", None, "give some text", field="prompt")
    return text


def utf8(data: bytes, where: str) -> str:
    """`data` as text. Raises InvalidArgument naming the first bad byte."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"{where} is not UTF-8",
            f"byte {error.start}",
            "convert it, for instance with iconv",
            field="prompt",
        ) from None


def checked(text: str) -> str:
    """`text` unless an argument's bytes were not UTF-8. Raises InvalidArgument."""
    utf8(text.encode(errors="surrogateescape"), "an argument")
    return text
