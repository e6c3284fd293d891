"""A process that starts and stops engines, with MLX work in flight, exits by itself and with 0."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mtplxd.families.load import LoadedModel

CYCLES = """
import sys, threading
from pathlib import Path
from mtplxd.engine.engine import Engine
from mtplxd.engine.request import Request, SamplerSettings
from mtplxd.families.load import load_model
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import mx

pack = read_pack(Path(sys.argv[1]))
for cycle in range(50):
    engine = Engine()
    engine.start()
    if cycle % 10 == 0:
        model = engine.call(lambda: load_model(pack), "loading").result(60)
    else:
        engine.call(lambda: mx.async_eval(mx.random.normal((200, 200)) @ mx.random.normal((200, 200))), "x").result(60)
    ends, begun = [], threading.Event()
    def sink(event):
        begun.set()
        if type(event).__name__ == "Finished":
            ends.append(event.stop_origin)
    if cycle % 10 == 0:
        sampler = SamplerSettings(temperature=0.8, top_p=0.9)
        engine.submit(Request("r", "c", model, [5, 6, 7], sampler, 1900, ignore_eos=True, depth=cycle // 10 % 3), sink)
        assert begun.wait(60)
    assert engine.stop(60)
    assert ends == (["shutdown"] if cycle % 10 == 0 else []), ends
print("done")
"""


def test_fifty_engines_come_and_go(tiny_model: LoadedModel) -> None:
    path: Path = tiny_model.pack.path
    done = subprocess.run(
        [sys.executable, "-c", CYCLES, str(path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr
