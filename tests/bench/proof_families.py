"""The full counts for published heads: trained checkpoints by their protocol, latent attention, recurrent roll-back.

    python tests/bench/proof_families.py

Each part is a command of its own and keeps its own results; this runs them in turn and fails where one fails.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PARTS = ("zoo", "latent", "rollback")


def main() -> int:
    folder = Path(__file__).parent
    failed = []
    for part in PARTS:
        print(f"{part}:", flush=True)
        if subprocess.run([sys.executable, str(folder / f"{part}.py")], check=False).returncode:
            failed.append(part)
    if failed:
        print(f"error: not reached ({', '.join(failed)}): see above", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
