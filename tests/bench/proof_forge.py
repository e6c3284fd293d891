"""The full counts for builds: killed a hundred times at random instants, with quick steps and with a model of the zoo.

    python tests/bench/proof_forge.py [quick zoo]

Each part keeps its own results; an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parent
PARTS = {"quick": ("--kills", "100"), "zoo": ("--kills", "100", "--model", "mimo")}


def main() -> int:
    """Runs the parts that are named, all without a name; 1 where one fails."""
    chosen = sys.argv[1:] or list(PARTS)
    unknown = [part for part in chosen if part not in PARTS]
    if unknown:
        print(f"error: no such part ({', '.join(unknown)}): give {', '.join(PARTS)}", file=sys.stderr)
        return 2
    command = [sys.executable, str(BENCH / "build_kills.py")]
    return max(subprocess.run([*command, *PARTS[part]], check=False).returncode for part in chosen)


if __name__ == "__main__":
    sys.exit(main())
