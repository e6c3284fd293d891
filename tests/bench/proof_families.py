"""The full counts for published heads: trained checkpoints by their protocol, latent attention, recurrent roll-back.

    python tests/bench/proof_families.py

Each part is a command of its own and keeps its own results; this runs them in turn and fails where one fails.
"""

from __future__ import annotations

import sys

from parts import run_parts

PARTS = ("zoo", "latent", "rollback")

if __name__ == "__main__":
    sys.exit(run_parts(dict.fromkeys(PARTS, ())))
