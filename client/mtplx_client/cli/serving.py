"""What the `service` commands do: drive the job, wait until its daemon answers, and tell it in words or JSON."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from mtplxd.errors import FailedPrecondition, NotFound, Unavailable

from mtplx_client.cli.app import App
from mtplx_client.cli.render import jobs

if TYPE_CHECKING:
    from mtplx_launchd.service import Service, Standing


def install(app: App, wait_s: float) -> None:
    """Install or update the job, then wait for its daemon."""
    from mtplx_launchd.job import describe_job

    home = app.local_home("service")
    service = _service(app)
    job = describe_job(home, app.settings, sys.executable, os.environ)
    for name in job.left_out:
        app.output.note(f"warning: {name} holds a key and is not written down: use `hf auth login`")
    _refuse_another(app, service)
    changed = service.install(job)
    _await(app, service, wait_s)
    words = "installed and running" if changed else "already installed and running"
    _tell(app, service, f"{words} in {service.why_there()}", changed=changed)


def uninstall(app: App, purge: bool) -> None:
    """Remove the job, and with `purge` all that the daemon made."""
    from mtplx_launchd.purge import purge as purge_home

    home = app.local_home("service")
    service = _service(app)
    was = service.uninstall()
    gone = purge_home(home) if purge else []
    if purge:
        kept = f"removed what was in {home.root}" if gone else f"nothing was left in {home.root}"
    else:
        kept = f"packs and sessions stay in {home.root}"
    said = f"{'uninstalled' if was else 'was not installed'}: {kept}"
    _tell(app, service, said, changed=was, home=str(home.root), removed=[str(path) for path in gone])


def start(app: App, wait_s: float) -> None:
    """Start the job, then wait for its daemon."""
    service = _service(app)
    _refuse_another(app, service)
    changed = service.start()
    _await(app, service, wait_s)
    _tell(app, service, "started" if changed else "already running", changed=changed)


def stop(app: App) -> None:
    """Stop the job."""
    service = _service(app)
    changed = service.stop()
    words = "stopped until the next login" if changed else "was not running"
    _tell(app, service, words, changed=changed)


def restart(app: App, wait_s: float) -> None:
    """Stop the job and start it, then wait for its daemon."""
    service = _service(app)
    service.restart()
    _await(app, service, wait_s)
    _tell(app, service, "restarted", changed=True)


def show(app: App) -> None:
    """The job as it is."""
    service = _service(app)
    found = service.look()
    if app.json:
        app.output.document(jobs.document(found, service.system))
    else:
        app.output.line(jobs.lines(found, service.system))


def logs(app: App, count: int, follow: bool) -> None:
    """What it wrote when it failed, then the daemon's own log."""
    from mtplx_launchd.job import ERRORS_NAME

    from mtplx_client.cli.tail import read_lines

    folder = app.local_home("service").logs
    errors, log = folder / ERRORS_NAME, folder / "mtplxd.log"
    if not (errors.is_file() or log.is_file()):
        raise NotFound("no log yet", folder, "`mtplx service start`")
    for path, followed in ((errors, False), (log, follow)):
        if path.is_file():
            for line in read_lines(path, count, followed):
                _line(app, path.name, line)
    if app.json:
        app.output.final({"path": str(folder)})


def _line(app: App, name: str, line: str) -> None:
    if app.json:
        app.output.event({"file": name, "line": line})
    else:
        app.output.text(line + "\n")


def _service(app: App) -> Service:
    from mtplx_launchd import service

    return service.Service(app.local_home("service"), service.this_backend())


def _refuse_another(app: App, service: Service) -> None:
    """A daemon that somebody started by hand would keep the job's from starting, again and again."""
    from mtplx_client.folder import is_listening

    if service.look().pid is None and is_listening(app.socket_path):
        what = "a daemon that is not the service's runs on this socket"
        raise FailedPrecondition(what, app.socket_path, "end it with `mtplx stop`, then again")


def _await(app: App, service: Service, wait_s: float) -> None:
    """Waits until the job's daemon serves. Raises Unavailable with what it wrote when it failed."""
    from mtplx_client.errors import DeadlineExceeded

    try:
        with app.client() as client:
            client.wait_ready(wait_s)
    except (Unavailable, DeadlineExceeded):
        found = service.look()
        said = _last_words(app) or f"state {found.state}, last exit {found.last_exit}"
        raise Unavailable("the service does not serve yet", said, "see `mtplx service logs`") from None


def _last_words(app: App) -> str:
    from mtplx_launchd.job import ERRORS_NAME

    try:
        text = (app.home.logs / ERRORS_NAME).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    lines = text.strip().splitlines()
    return lines[-1].removeprefix("error: ") if lines else ""


def _tell(app: App, service: Service, words: str, **more: object) -> None:
    found: Standing = service.look()
    if app.json:
        app.output.document({**jobs.document(found, service.system), **more})
    else:
        app.output.line(f"{found.label}: {words}{f' (pid {found.pid})' if found.pid else ''}")
