"""One side of `alone.py`: a daemon and a client of the checkout that PYTHONPATH names, asked line by line on stdin.

    PYTHONPATH=DIR/daemon:DIR/client:DIR/proto python tests/bench/alone_side.py PACK

Writes a line of JSON once the model is in memory and one an answer; nothing is compared here.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import mtplxd
from mtplx_client import Client
from mtplx_client.events import Text

sys.path.append(str(Path(__file__).parents[1]))

from support.daemon_process import running_daemon, short_folder


def tell(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def time_answer(client: Client, model: str, prompt: str, options: dict[str, Any]) -> dict[str, Any]:
    """Tokens a second between the first and the last token, and seconds to the first; stop tokens ignored."""
    tokens: list[int] = []
    times: list[float] = []
    begin = time.perf_counter()
    for event in client.generate(prompt, model=model, force=True, ignore_eos=True, **options):
        if isinstance(event, Text) and event.tokens:
            times.append(time.perf_counter())
            tokens += event.tokens
    first = times[0]
    spent = max(times[-1] - first, 1e-9)
    return {"tok_s": (len(tokens) - 1) / spent, "ttft_s": first - begin, "tokens": tokens}


def main() -> None:
    model = sys.argv[1]
    with short_folder() as home, running_daemon(home) as daemon, Client(socket=daemon.socket) as client:
        client.load(model, force=True)
        tell({"code": mtplxd.__file__})
        for line in sys.stdin:
            asked = json.loads(line)
            tell(time_answer(client, model, asked["prompt"], asked["options"]))


if __name__ == "__main__":
    main()
