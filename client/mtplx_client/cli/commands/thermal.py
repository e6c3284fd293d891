"""`mtplx thermal`: heat, fans, and the root helper that may hold them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

import click
from mtplxd.errors import Cancelled, InvalidArgument

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.shape import Branch, leaf
from mtplx_client.fans import Thermal

MODES = ("auto", "smart", "max")


@click.group("thermal", cls=Branch)
def thermal() -> None:
    """Heat and fans."""


@leaf("status", "thermal status", "thermal status --json")
@pass_app
def status(app: App, /) -> None:
    """Show how hot the machine is, who has its fans, and whether the fan helper answers."""
    with app.client() as client:
        _show(app, client.fans())


@leaf("set", "thermal set smart", "thermal set auto")
@click.argument("mode", type=click.Choice(MODES))
@pass_app
def set_(app: App, /, mode: str) -> None:
    """Choose when fans are held: auto for measurements only, smart while text is made, max always.

    The choice is kept. Without the fan helper it changes nothing until that is installed.
    """
    with app.client() as client:
        _show(app, client.set_fans(mode))


@leaf(
    "install-helper",
    "thermal install-helper",
    "thermal install-helper --dry-run",
    "thermal install-helper --interpreter /usr/bin/python3.11",
)
@click.option("--interpreter", metavar="PATH", help="A Python that is root's alone (default: the system's).")
@click.option("--dry-run", is_flag=True, help="Check and show, and do nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_app
def install_helper(app: App, /, interpreter: str | None, dry_run: bool, yes: bool) -> None:
    """Install mtplxd-fand, the small root helper that holds fans while a lease is renewed.

    Shows every command that will run as root, and asks. Once it is there, measurements hold the fans.
    """
    from mtplx_launchd.helper.install import as_root, install, prepare, shown
    from mtplx_launchd.helper.plan import places_here
    from mtplx_launchd.helper.trust import Trust

    plan = prepare(places_here(), user_of(os.environ), interpreter, Trust())
    try:
        steps = [shown(step) for step in plan.steps]
        _propose(app, steps, f"The helper will run as root: {shown(plan.command)}")
        if not dry_run:
            _agree(app, yes)
            install(plan, Trust(), as_root)
        by_hand = "" if plan.start else f"nothing starts it here: `sudo {shown(plan.command)}`"
        _conclude(app, steps, plan.command, done=not dry_run, note=by_hand)
    finally:
        plan.close()


@leaf("uninstall-helper", "thermal uninstall-helper")
@click.option("--dry-run", is_flag=True, help="Show, and do nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_app
def uninstall_helper(app: App, /, dry_run: bool, yes: bool) -> None:
    """Remove the fan helper and its job. Fans are the system's from then on."""
    from mtplx_launchd.helper.install import as_root, shown, uninstall
    from mtplx_launchd.helper.plan import places_here, remove_steps

    steps = [shown(step) for step in remove_steps(places_here())]
    _propose(app, steps, "")
    if not dry_run:
        _agree(app, yes)
        uninstall(places_here(), as_root)
    _conclude(app, steps, [], done=not dry_run)


def user_of(env: Mapping[str, str]) -> int:
    """Who may hold fans: whoever calls, or who called sudo."""
    asked = env.get("SUDO_UID", "")
    return int(asked) if os.geteuid() == 0 and asked.isdecimal() else os.getuid()


def _propose(app: App, steps: Sequence[str], more: str) -> None:
    if not app.json:
        app.output.line(
            "\n".join(
                ["These commands will run as root:", *(f"  {step}" for step in steps), *filter(None, [more])]
            )
        )


def _agree(app: App, yes: bool) -> None:
    """Returns where the user agrees. Raises Cancelled, InvalidArgument where nobody can be asked."""
    if yes:
        return
    if app.json or not sys.stdin.isatty():
        raise InvalidArgument("nobody can be asked here", None, "give --yes", field="yes")
    if not click.confirm("Run them?"):
        raise Cancelled("nothing was done", None, "")


def _conclude(app: App, steps: Sequence[str], command: Sequence[str], *, done: bool, note: str = "") -> None:
    if app.json:
        app.output.document(
            {"commands": list(steps), "helper": list(command), "done": done, "note": note or None}
        )
    else:
        app.output.line(note or ("done" if done else "nothing was done"))


def _show(app: App, found: Thermal) -> None:
    from mtplx_client.cli.render import fans

    if app.json:
        app.output.document(fans.document(found))
    else:
        app.output.line(fans.view(found, app.color))


for _command in (status, set_, install_helper, uninstall_helper):
    thermal.add_command(_command)
