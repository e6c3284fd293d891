"""`mtplxd` under the name of what computed a home: blocks are their machine's own, and tests take homes to others.

python -m support.computing_as NAME [arguments of mtplxd]
"""

from __future__ import annotations

import sys

from mtplxd.__main__ import main
from mtplxd.engine import identity

if __name__ == "__main__":
    name = sys.argv.pop(1)
    identity._backend = lambda: name
    sys.exit(main())
