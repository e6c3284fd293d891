"""Whether the Hub, or the mirror in its place, answers from here. No key is sent."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator

from mtplxd.paths import HUB, HuggingFace, resolve_hugging_face

from mtplx_client.doctor.situation import Situation
from mtplx_client.doctor.verdicts import Check

LIMIT_S = 4.0
_FIX = "check the network, HTTPS_PROXY or HF_ENDPOINT; HF_HUB_OFFLINE=1 does without (models that are here still run)"
_BROKEN = 500


def check_hub(situation: Situation) -> Iterator[Check]:
    """One request for nothing, with a time limit."""
    del situation
    yield look(resolve_hugging_face())


def look(hub: HuggingFace, limit_s: float = LIMIT_S) -> Check:
    """Any answer but a server's own failure will do: a page that needs a login is an answer."""
    if hub.offline:
        return Check("hub", True, "not asked: HF_HUB_OFFLINE is set")
    endpoint = hub.endpoint or HUB
    try:
        request = urllib.request.Request(endpoint, method="HEAD")
        with urllib.request.urlopen(request, timeout=limit_s):
            return Check("hub", True, f"{endpoint} answers")
    except urllib.error.HTTPError as error:
        return Check("hub", error.code < _BROKEN, f"{endpoint} answers {error.code}", _FIX)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        return Check("hub", False, f"{endpoint} does not answer, {reason}", _FIX)
