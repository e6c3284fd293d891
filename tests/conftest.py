"""What holds for every test: a run started in the background ignores Ctrl-C, and its children would inherit that."""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
