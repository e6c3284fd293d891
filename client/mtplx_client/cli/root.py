"""The root command: the table of commands, which are imported only when they run."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import click

from mtplx_client.cli.app import App
from mtplx_client.cli.shape import Branch, write_examples

SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Use": {
        "quickstart": ("quickstart", "Set up, stream one answer and measure the speed-up."),
        "generate": ("generate", "Answer one prompt."),
        "chat": ("chat", "Talk, with line history."),
        "sessions": ("sessions", "Named conversations."),
    },
    "Models": {
        "inspect": ("inspecting", "Say what a checkpoint is and whether it runs."),
        "pull": ("models", "Fetch a model and make it a pack."),
        "ls": ("models", "List the packs on disk."),
        "show": ("models", "Describe one pack."),
        "rm": ("models", "Delete a pack."),
        "load": ("residents", "Bring a model into memory."),
        "unload": ("residents", "Take a model out of memory."),
        "ps": ("residents", "List the models in memory and the requests in work."),
        "cancel": ("residents", "End a request in work."),
    },
    "Daemon": {
        "status": ("daemon", "Show the daemon's state."),
        "stop": ("daemon", "Stop the daemon."),
        "service": ("service", "Keep the daemon always on: at login, after a crash."),
        "wait-ready": ("daemon", "Wait until the daemon serves."),
        "doctor": ("doctor", "Check what the daemon needs."),
        "logs": ("logs", "Show the daemon's log."),
        "du": ("du", "Show what takes space on the disk."),
        "thermal": ("thermal", "Heat, fans and the helper that may hold them."),
        "config": ("config", "Read and write settings."),
        "cache": ("cache", "What is kept on disk of prompts."),
    },
    "More": {
        "bench": ("bench", "Measure decoding."),
        "tune": ("tune", "Find the depth that pays on this machine."),
        "forge": ("forge", "Make packs of models, or find out why it does not pay."),
        "verify": ("verify", "Prove a pack against its own plain decoding."),
        "completion": ("completion", "Print a shell's completion script."),
    },
}
"""By section: command -> (its module in `commands`, its line in the help)."""

COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
EXAMPLES = (
    "quickstart",
    'generate "Name three rivers." --model smollm2-135m --stats',
    "chat --model smollm2-135m",
)


class Root(Branch):
    """The group of all commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"mtplx_client.cli.commands.{COMMANDS[cmd_name][0]}")
        command = getattr(module, cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        write_examples(formatter, EXAMPLES)


@click.command("mtplx", cls=Root, invoke_without_command=True)
@click.pass_context
def root(ctx: click.Context) -> None:
    """Run language models locally with mtplxd, the daemon that keeps them warm."""
    if ctx.invoked_subcommand is None:
        if ctx.ensure_object(App).json:
            raise click.UsageError("no command", ctx)
        click.echo(_short_help())


def _short_help() -> str:
    """What bare `mtplx` says."""
    lines = ["mtplx runs language models locally, through the daemon mtplxd.", "", "Start with:"]
    lines += [f"  mtplx {example}" for example in EXAMPLES]
    lines += ["", f"Commands: {', '.join(COMMANDS)}", "", "`mtplx --help` explains them."]
    return "\n".join(lines)
