"""`python -m mtplx_client` is the `mtplx` command."""

from __future__ import annotations

import sys

from mtplx_client.cli import main

if __name__ == "__main__":
    sys.exit(main())
