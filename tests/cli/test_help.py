"""Help and parser agree: every command, flag and example that the help names is one that parses."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest
from mtplx_client.cli.app import App
from mtplx_client.cli.edge import run
from mtplx_client.cli.output import Output
from mtplx_client.cli.root import COMMANDS, EXAMPLES, root
from mtplx_client.cli.shape import GLOBAL_OPTIONS, Leaf

_SAMPLES = {
    click.types.IntParamType: "3",
    click.types.FloatParamType: "0.5",
    click.types.IntRange: "3",
    click.types.FloatRange: "0.5",
    click.types.StringParamType: "text",
}
_NAMED = {
    "seconds": "5",
    "time": "10m",
    "depths": "0,1",
    "widths": "1,2",
    "bias": "42:-5",
    "depth": "auto",
    "override": "lm_head=8",
}


def _leaves() -> Iterator[tuple[str, Leaf]]:
    context = click.Context(root)
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        if isinstance(command, click.Group):
            for inner, leaf in command.commands.items():
                assert isinstance(leaf, Leaf)
                yield f"{name} {inner}", leaf
        else:
            assert isinstance(command, Leaf)
            yield name, command


LEAVES = dict(_leaves())


def parse(argv: list[str]) -> tuple[click.Context, App]:
    """Parse a whole command line without running it."""
    app = App(output=Output())
    context = root.make_context("mtplx", list(argv), obj=app)
    group: click.Group = root
    rest = [*context._protected_args, *context.args]
    while True:
        name, command, rest = group.resolve_command(context, rest)
        assert command is not None
        context = command.make_context(name, rest, parent=context)
        if not isinstance(command, click.Group):
            return context, app
        group, rest = command, [*context._protected_args, *context.args]


def _arguments(leaf: Leaf) -> list[str]:
    values = {
        "name": "smollm2-135m",
        "prompt": "hi",
        "shell": "bash",
        "key": "model",
        "value": "x",
        "to": "y",
        "id": "r1",
        "run": "mine",
        "repo": "ada/mine",
        "mode": "smart",
    }
    arguments = [values[p.name or ""] for p in leaf.params if isinstance(p, click.Argument)]
    needed = [p for p in leaf.params if isinstance(p, click.Option) and p.required]
    return [*arguments, *(word for option in needed for word in (option.opts[0], *_value(option)))]


def _value(option: click.Option) -> list[str]:
    if option.is_flag:
        return []
    if isinstance(option.type, click.Choice):
        return [str(option.type.choices[0])]
    return [_NAMED.get(option.type.name) or _SAMPLES[type(option.type)]]


@pytest.mark.parametrize("name", LEAVES)
def test_every_listed_flag_parses(name: str) -> None:
    leaf = LEAVES[name]
    listed = leaf.get_help(click.Context(leaf, info_name=name))
    options = {
        flag: option
        for option in [*leaf.params, *GLOBAL_OPTIONS]
        if isinstance(option, click.Option)
        for flag in [*option.opts, *option.secondary_opts]
    }
    flags = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", listed, re.MULTILINE)) - {"--help", "--version"}
    flags |= set(re.findall(r" / (--[\w-]+)", listed))
    assert {f for f in options if f.startswith("--")} == flags | {"--version"}
    for flag in flags:
        context, _ = parse([*name.split(), *_arguments(leaf), flag, *_value(options[flag])])
        assert context.command is leaf


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_has_examples_that_parse(name: str) -> None:
    leaf = LEAVES[name]
    assert leaf.examples
    for example in leaf.examples:
        words = shlex.split(re.split(r" [<>] ", example)[0])
        context, _ = parse(words)
        assert context.command is leaf


def test_the_examples_of_the_program_parse() -> None:
    for example in EXAMPLES:
        parse(shlex.split(example))


def test_the_table_of_commands_is_the_commands() -> None:
    assert {name.split()[0] for name in LEAVES} == set(COMMANDS)
    for name in COMMANDS:
        assert root.get_command(click.Context(root), name).name == name  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "argv",
    [
        ["--socket", "/s", "--home", "/h", "--timeout", "5", "--json", "--no-color", "status"],
        ["status", "--socket", "/s", "--home", "/h", "--timeout", "5", "--json", "--no-color"],
        [
            "--socket",
            "/no",
            "--timeout",
            "9",
            "status",
            "--socket",
            "/s",
            "--home",
            "/h",
            "--timeout",
            "5",
            "--no-color",
        ],
        ["config", "--socket", "/s", "--home", "/h", "get", "--timeout", "5", "--no-color"],
    ],
    ids=["before", "after", "the later one wins", "in the middle"],
)
def test_global_options_stand_before_or_after_the_subcommand(argv: list[str]) -> None:
    _, app = parse(argv)
    assert (app.socket, app.home_flag, app.timeout, app.no_color) == ("/s", "/h", 5.0, True)


GROUPS = [name for name in COMMANDS if isinstance(root.get_command(click.Context(root), name), click.Group)]


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_by_itself_says_what_it_has(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.startswith(f"Usage: mtplx {name} ")
    assert "\nCommands:\n" in said.out


@pytest.mark.parametrize("argv", [["sessions", "--json"], ["--json", "sessions"]])
def test_a_program_that_names_no_command_of_a_group_is_refused(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == 2
    said = capsys.readouterr()
    assert said.err == "error: missing command: see `mtplx sessions --help`\n"
    assert '"code": "INVALID_ARGUMENT"' in said.out
