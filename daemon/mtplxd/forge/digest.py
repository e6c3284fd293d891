"""One hash of JSON values: what a step depended on, what a pack was put together from."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def digest_of(values: Any) -> str:
    """The same for values that are equal as JSON."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
