"""`mtplx completion`: the script that completes commands and options in a shell."""

from __future__ import annotations

import click

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.shape import leaf


@leaf(
    "completion",
    "completion bash > ~/.local/share/bash-completion/completions/mtplx",
    'completion zsh > "${fpath[1]}/_mtplx"',
    "completion fish > ~/.config/fish/completions/mtplx.fish",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@pass_app
def completion(app: App, /, shell: str) -> None:
    """Print the completion script for SHELL."""
    from click.shell_completion import get_completion_class

    from mtplx_client.cli.edge import COMPLETE
    from mtplx_client.cli.root import root

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(root, {}, "mtplx", COMPLETE).source()
    if app.json:
        app.output.document({"shell": shell, "script": script})
    else:
        app.output.line(script)
