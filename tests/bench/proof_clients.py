"""The full counts for many clients: texts together and alone, fairness, arrivals, speeds, and half an hour's soak.

    python tests/bench/proof_clients.py [together fairness arrivals clients_modes soak]

Each part is a command of its own and keeps its own results; this runs them in turn and fails where one fails. The
timed ones want a machine that does nothing else; an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import sys

from parts import run_parts

PARTS = {
    "together": ("--count", "64", "--clients", "8"),
    "fairness": ("--clients", "8", "--repeats", "3"),
    "arrivals": ("--long", "4000", "--repeats", "3"),
    "clients_modes": ("--clients", "1,2,4,8", "--modes", "plain,1,2,3,auto", "--turns", "3"),
    "soak": ("--minutes", "30", "--clients", "8"),
}


def main() -> int:
    chosen = sys.argv[1:] or list(PARTS)
    unknown = [part for part in chosen if part not in PARTS]
    if unknown:
        print(f"error: no such part ({', '.join(unknown)}): give {', '.join(PARTS)}", file=sys.stderr)
        return 2
    return run_parts({part: PARTS[part] for part in chosen})


if __name__ == "__main__":
    sys.exit(main())
