"""`mtplx config`: settings of daemon and clients, in config.toml."""

from __future__ import annotations

import click
from mtplxd.errors import InvalidArgument

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.output import error_fields
from mtplx_client.cli.shape import Branch, leaf


@click.group("config", cls=Branch)
def config() -> None:
    """Read and write settings; a flag beats the environment, which beats config.toml."""


@leaf("get", "config get", "config get keep_alive")
@click.argument("key", required=False)
@pass_app
def get(app: App, /, key: str | None) -> None:
    """Show the effective value of KEY, or of all, and where it comes from."""
    from mtplxd.config import find_key, survey_settings

    if key is not None:
        find_key(key)
    settings, errors = survey_settings(app.local_home("config"), {"socket": app.socket})
    for warning in settings.warnings:
        app.output.note(f"warning: {warning}")
    fields = {getattr(error, "field", ""): error for error in errors}
    if "" in fields:  # nothing of config.toml was read, so no value is the effective one
        raise fields[""]
    bad = [error for name, error in fields.items() if key in (None, name)]
    shown = [item for item in settings.shown if key in (None, item.key) and item.key not in fields]
    if app.json:
        values: dict[str, object] = {item.key: {"value": item.value, "source": item.source} for item in shown}
        app.output.document(values | (error_fields(bad[0]) if bad else {}))
    else:
        for item in shown:
            value = item.value or "(none)"
            app.output.line(value if key else f"{item.key:<20}{value}  [{item.source}]")
    for error in bad:
        app.fail(error)


@leaf("set", "config set model smollm2-135m", "config set keep_alive 10m", "config set keep_alive --default")
@click.argument("key")
@click.argument("value", required=False)
@click.option("--default", "default", is_flag=True, help="Remove KEY from config.toml.")
@pass_app
def set_(app: App, /, key: str, value: str | None, default: bool) -> None:
    """Write VALUE of KEY to config.toml. The daemon reads it when it starts."""
    from mtplxd.config import set_value

    if (value is None) != default:
        raise InvalidArgument("one of VALUE and --default is needed", key, "give exactly one")
    set_value(app.local_home("config"), key, value)
    if app.json:
        app.output.document({"key": key, "value": value, "path": str(app.local_home("config").config_file)})
    else:
        app.output.line(
            f"{key} = {value if value is not None else '(default)'}: applies when the daemon starts"
        )


@leaf("path", "config path")
@pass_app
def path(app: App, /) -> None:
    """Show where config.toml is."""
    if app.json:
        app.output.document({"path": str(app.local_home("config").config_file)})
    else:
        app.output.line(str(app.local_home("config").config_file))


for _command in (get, set_, path):
    config.add_command(_command)
