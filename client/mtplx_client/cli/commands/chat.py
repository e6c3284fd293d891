"""`mtplx chat`: a conversation in the terminal."""

from __future__ import annotations

from typing import Any

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.options import answer_options
from mtplx_client.cli.shape import leaf


@leaf(
    "chat",
    "chat --model smollm2-135m",
    'chat --system "Answer in one sentence." --temperature 0.6 --depth 2',
    "chat --session work",
)
@answer_options
@pass_app
def chat(app: App, /, **options: Any) -> None:
    """Talk with a model. Ctrl-C stops the answer, Ctrl-D or /exit ends the chat, /help lists more.

    With --session NAME the conversation is kept, and goes on with the next chat of that name.
    """
    from mtplx_client.cli.conversation import Conversation
    from mtplx_client.cli.lineinput import LineInput

    with app.client() as client, LineInput(app.home) as lines:
        Conversation(app, client, lines, options).run()
