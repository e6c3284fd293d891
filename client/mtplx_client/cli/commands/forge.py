"""`mtplx forge`: from a checkpoint to a pack that is faster here, or to the reason why not."""

from __future__ import annotations

from typing import Any

import click
from mtplxd.errors import FailedPrecondition, NotFound

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.commands.bench import Depths
from mtplx_client.cli.options import ModelName, name_argument, no_fans_option
from mtplx_client.cli.shape import Branch, leaf

BITS = ("2", "3", "4", "5", "6", "8", "16")
HEAD_BITS = ("2", "3", "4", "5", "6", "8")
GROUPS = ("32", "64", "128")
DTYPES = ("auto", "bf16", "f16", "f32")


class BitsOf(click.ParamType):  # type: ignore[type-arg]
    """`LAYERS=BITS`: a pattern of layer paths and their width."""

    name = "override"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        layers, equals, bits = value.rpartition("=")
        if not (layers and equals and bits in BITS):
            self.fail(f"{value!r} is no pattern and width such as lm_head=8", param, ctx)
        return layers, int(bits)


run_argument = click.argument("run", type=ModelName())


@click.group("forge", cls=Branch)
def forge() -> None:
    """Make packs of models, or find out why it does not pay."""


@leaf("probe", "forge probe org/name", "forge probe ./checkpoint --json")
@name_argument
@pass_app
def probe(app: App, /, name: str) -> None:
    """Say what could be built of the model NAME, by its headers alone: org/name, a folder or a pack."""
    from mtplx_client.cli.render import forges, probes

    with app.client() as client:
        found = client.probe(name)
    if app.json:
        app.output.document(forges.probe_document(found))
    else:
        app.output.line(probes.probe(found))


@leaf(
    "build",
    "forge build org/name --name mine",
    "forge build org/name --name mine --body-bits 4 --group-size 64 --detach",
    "forge build smollm2-135m --name mine --train --quick",
)
@name_argument
@click.option("--name", "pack", required=True, metavar="N", help="The name of the pack to make.")
@click.option(
    "--body-bits",
    type=click.Choice(BITS),
    metavar="B",
    help="Quantise the body; 16 = do not (default: as it is).",
)
@click.option(
    "--group-size", type=click.Choice(GROUPS), default="64", show_default=True, help="Weights a scale."
)
@click.option(
    "--dtype", type=click.Choice(DTYPES), default="auto", show_default=True, help="Of what is not quantised."
)
@click.option(
    "--override",
    "overrides",
    type=BitsOf(),
    multiple=True,
    metavar="LAYERS=BITS",
    help="Another width for some layers.",
)
@click.option(
    "--quality-floor",
    type=click.FloatRange(0, 1),
    metavar="P",
    help="Least agreement with the source (0.85).",
)
@click.option("--train", is_flag=True, help="Train a head, or the one that is there further.")
@click.option(
    "--train-method", type=click.Choice(["auto", "lora", "full"]), help="How a head that is there is trained."
)
@click.option("--train-prompts", metavar="FILE", help="Prompts to train on (default: built in).")
@click.option(
    "--train-tokens", type=click.IntRange(min=1), metavar="N", help="Tokens to train on (default: what fits)."
)
@click.option("--train-steps", type=click.IntRange(min=1), metavar="N", help="Updates (default: what fits).")
@click.option(
    "--train-seed", type=click.IntRange(min=0), default=0, metavar="N", help="Of all that is drawn."
)
@click.option("--quick", is_flag=True, help="Train and measure for less long.")
@click.option("--depths", type=Depths(), default=(), help="Depths to measure (default: as `mtplx tune`).")
@click.option(
    "--head-bits",
    type=click.Choice(HEAD_BITS),
    metavar="B",
    help="Quantise the head, which costs acceptance.",
)
@click.option("--allow-degraded-head", is_flag=True, help="Needed with --head-bits.")
@click.option("--accept-throttled", is_flag=True, help="Decide though the machine changed its speed.")
@no_fans_option
@click.option("--on-battery", is_flag=True, help="Go on when the battery is below 30 %.")
@click.option("--detach", is_flag=True, help="Begin it and do not wait.")
@pass_app
def build(
    app: App,
    /,
    name: str,
    pack: str,
    body_bits: str | None,
    group_size: str,
    dtype: str,
    overrides: tuple[tuple[str, int], ...],
    quality_floor: float | None,
    train: bool,
    train_method: str | None,
    train_prompts: str | None,
    train_tokens: int | None,
    train_steps: int | None,
    train_seed: int,
    quick: bool,
    depths: tuple[int | str, ...],
    head_bits: str | None,
    allow_degraded_head: bool,
    accept_throttled: bool,
    no_fans: bool,
    on_battery: bool,
    detach: bool,
) -> None:
    """Make a pack of the model NAME and measure it: exit 0 if it is faster than plain decoding here, else 3.

    A build goes on when the terminal closes; Ctrl-C leaves it at work.
    """
    from mtplx_client.builds import BuildOptions, Training
    from mtplx_client.cli.following import follow

    options = BuildOptions(
        body_bits=int(body_bits) if body_bits else None,
        group_size=int(group_size),
        dtype=dtype,
        overrides=dict(overrides),
        train=train,
        training=Training(
            train_method or "", train_prompts or "", train_tokens or 0, train_steps or 0, train_seed
        ),
        quick=quick,
        depths=depths,
        head_bits=int(head_bits) if head_bits else None,
        allow_degraded_head=allow_degraded_head,
        quality_floor=quality_floor,
        on_battery=on_battery,
        accept_throttled=accept_throttled,
        no_fans=no_fans,
    )
    with app.client() as client:
        follow(app, client.build(name, pack, options, detach=detach), detach=detach)


@leaf("runs", "forge runs", "forge runs --follow", "forge runs --json")
@click.argument("run", type=ModelName(), required=False)
@click.option("--follow", "follows", is_flag=True, help="Follow the one that is in work, or RUN, to its end.")
@pass_app
def runs(app: App, /, run: str | None, follows: bool) -> None:
    """List the builds, or the one whose id or pack's name is RUN."""
    from mtplx_client.cli.following import follow
    from mtplx_client.cli.render import forges

    with app.client() as client:
        if follows:
            follow(app, client.follow_build(run or ""))
            return
        found = [one for one in client.builds() if run in (None, one.run, one.name)]
    if run and not found:
        raise NotFound("no such run", run, "see `mtplx forge runs`")
    if app.json:
        app.output.document({"runs": [forges.run_document(one) for one in found]})
    else:
        app.output.line(forges.runs_view(found, app.color))


@leaf("resume", "forge resume build-20260131-120000-0a1b2c", "forge resume mine --detach")
@run_argument
@click.option("--detach", is_flag=True, help="Begin and do not wait.")
@pass_app
def resume(app: App, /, run: str, detach: bool) -> None:
    """Take the build RUN up again, by its id or its pack's name: no finished step runs twice."""
    from mtplx_client.cli.following import follow

    with app.client() as client:
        follow(app, client.resume_build(run, detach=detach), detach=detach)


@leaf("cancel", "forge cancel build-20260131-120000-0a1b2c", "forge cancel mine")
@run_argument
@pass_app
def cancel(app: App, /, run: str) -> None:
    """End the build RUN if it is in work, and delete all that it holds. A pack that it made stays."""
    from mtplx_client.cli.render.words import size

    with app.client() as client:
        gone = client.cancel_build(run)
    if app.json:
        app.output.document({"run": gone.run, "stopped": gone.stopped, "bytes_freed": gone.bytes_freed})
    else:
        stopped = "stopped and " if gone.stopped else ""
        app.output.line(f"{gone.run} is {stopped}gone, {size(gone.bytes_freed)} freed")


@leaf("publish", "forge publish mine ada/mine", "forge publish mine ada/mine --dry-run")
@name_argument
@click.argument("repo", type=ModelName())
@click.option("--dry-run", is_flag=True, help="Say what would be put there, and put nothing there.")
@pass_app
def publish(app: App, /, name: str, repo: str, dry_run: bool) -> None:
    """Put the verified pack NAME on the Hub as REPO."""
    from mtplx_client.cli.progress import reporter
    from mtplx_client.cli.render import forges, probes

    with app.client() as client, reporter(app) as progress:
        found = client.publish(name, repo, dry_run=dry_run, on_progress=progress)
    if app.json:
        app.output.final(forges.published_document(found))
    else:
        app.output.line(probes.publication(found))
    for refusal in found.document.get("refusals", ()):
        app.fail(
            FailedPrecondition(
                f"it would not be published, {refusal['what']}", refusal["where"] or None, refusal["fix"]
            )
        )


for _command in (probe, build, runs, resume, cancel, publish):
    forge.add_command(_command)
