"""What goes wrong with the Hub, said in one line: the library's many errors become our few typed ones.

No message carries a token, a header or a whole address.
"""

from __future__ import annotations

from collections.abc import Iterator

from mtplxd.errors import (
    DataLoss,
    FailedPrecondition,
    InvalidArgument,
    MtplxError,
    NotFound,
    Unavailable,
)

LOG_IN = "set HF_TOKEN where the daemon runs, or `hf auth login`"
_NO_TOKEN = "unset HF_ENDPOINT, a mirror gets no token"


class NoRange(Exception):
    """The server sends a file from its start, whatever range is asked for."""


class AnotherFile(DataLoss):
    """The Hub has other bytes under a name than those it listed."""


def library_errors() -> tuple[type[Exception], ...]:
    """All that the library raises while it talks to the Hub, answers of something else that is no Hub included."""
    return _http_error(), OSError, ValueError, KeyError, TypeError, AttributeError


def _http_error() -> type[Exception]:
    """The base of the HTTP client's errors; which client that is depends on the library's version."""
    from huggingface_hub.errors import HfHubHTTPError

    kinds: dict[str, type[Exception]] = {kind.__name__: kind for kind in HfHubHTTPError.__mro__}
    return kinds["HTTPError"]


def explain(error: Exception, name: str, host: str, *, mirror: bool) -> MtplxError:
    """The typed error that an exception of the library amounts to. `host` is the Hub's or the mirror's."""
    from huggingface_hub import errors as hub

    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, hub.HFValidationError):
        return InvalidArgument("no name of a repository", name, "write org/name or org/name@revision")
    if isinstance(error, hub.OfflineModeIsEnabled):
        return Unavailable("the Hub is switched off", f"HF_HUB_OFFLINE, {name}", "unset it to reach the Hub")
    if status is not None:
        return _refused(error, int(status), name, host, mirror)
    if isinstance(error, _http_error()):
        return _unreachable(error, host)
    return Unavailable("no Hub answers there", host, "check the network, and HF_ENDPOINT where it is set")


def _refused(error: Exception, status: int, name: str, host: str, mirror: bool) -> MtplxError:
    """What an answer with an error status means."""
    from huggingface_hub import errors as hub

    sent = getattr(error, "response").headers  # noqa: B009
    log_in = _NO_TOKEN if mirror else LOG_IN
    if isinstance(error, hub.GatedRepoError):
        fix = f"accept its terms at https://huggingface.co/{name.partition('@')[0]}, then {log_in}"
        return FailedPrecondition("this repository is gated", name, fix)
    if isinstance(error, hub.RevisionNotFoundError):
        return NotFound("no such revision", name, "give a branch, a tag or a whole commit")
    if isinstance(error, hub.EntryNotFoundError):
        return NotFound("the repository lost a file", name, "try again")
    if status == 401 and "nvalid" in sent.get("X-Error-Message", ""):
        return FailedPrecondition("the Hub refuses the token", name, "make a new one, then " + log_in)
    if status in (401, 404) or isinstance(error, hub.RepositoryNotFoundError):
        fix = f"check the name; for a private one {log_in}"
        return NotFound("no such repository, or a private one", name, fix)
    if status == 403:
        return FailedPrecondition("the Hub refuses access", name, log_in)
    if status == 429:
        wait = sent.get("Retry-After", "")
        return Unavailable(
            "too many requests", host, f"try again in {wait} s" if wait.isdecimal() else "wait a while"
        )
    if status in (409, 412):
        fix = "look at what was pushed to it, then try again"
        return FailedPrecondition("the repository was changed meanwhile", name, fix)
    if status >= 500:
        return Unavailable("the Hub fails", f"status {status} from {host}", "try again later")
    return Unavailable("the Hub gave an answer nobody expects", f"status {status} from {host}", "try again")


def _unreachable(error: Exception, host: str) -> MtplxError:
    said = " ".join(f"{type(each).__name__} {each}" for each in _chain(error))
    if "CERTIFICATE" in said.upper():
        fix = "where a proxy reads along, set SSL_CERT_FILE to its certificate"
        return Unavailable("the certificate is not trusted", host, fix)
    if "Timeout" in said:
        return Unavailable("no answer in time", host, "check the network, then try again")
    if "ProxyError" in said:
        return Unavailable("the proxy refuses", host, "check HTTPS_PROXY and NO_PROXY")
    return Unavailable("cannot reach", host, "check the network, and HF_ENDPOINT where it is set")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
