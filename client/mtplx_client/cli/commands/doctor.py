"""`mtplx doctor`: is everything here that the daemon needs?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.shape import leaf


@leaf("doctor", "doctor", "doctor --json", "doctor --bundle report.zip")
@click.option(
    "--bundle", metavar="FILE", help="Write checks, settings and logs to FILE; no prompts, no keys."
)
@pass_app
def doctor(app: App, /, bundle: str | None) -> None:
    """Check versions, machine, disk, memory, permissions, service, packs, Hub; exit 1 if anything is wrong.

    Works without a daemon and where mlx cannot be imported.
    """
    from mtplx_client.doctor.checks import run_checks

    checks = []
    for check in run_checks(app.local_home("doctor"), app.socket, app.timeout):
        checks.append(check)
        if not app.json:
            app.output.line(f"{'ok   ' if check.ok else 'WRONG'} {check.name:<12} {check.detail}")
            if check.fix and not check.ok:
                app.output.line(f"{'':>19}{check.fix}")
    document: dict[str, Any] = {
        "checks": [{**asdict(check), "fix": "" if check.ok else check.fix} for check in checks]
    }
    if bundle is not None:
        document["bundle"] = str(_write(app, Path(bundle), document))
    if app.json:
        app.output.document(document)
    elif bundle is not None:
        app.output.line(f"written to {document['bundle']}: no prompts, no answers, no keys")
    if not all(check.ok for check in checks):
        app.exit_code = 1


def _write(app: App, path: Path, checks: dict[str, Any]) -> Path:
    """The bundle of this look; where it is."""
    from mtplx_launchd.service import Service, this_backend
    from mtplxd.config import survey_settings
    from mtplxd.errors import MtplxError
    from mtplxd.paths import absolute

    from mtplx_client.cli.render import documents, jobs
    from mtplx_client.doctor.bundle import write_bundle

    settings, _ = survey_settings(app.home, {"socket": app.socket})
    backend = this_backend()
    service = Service(app.home, backend)
    parts: dict[str, Any] = {
        "doctor": checks,
        "settings": {item.key: {"value": item.value, "source": item.source} for item in settings.shown},
        "service": jobs.document(service.look(), backend.name),
    }
    try:
        with app.client() as client:
            parts["status"] = documents.status(client.status(timeout=5.0))
    except MtplxError as error:
        parts["status"] = {"error": error.what}
    job = service.path.read_text(errors="replace") if service.path.is_file() else ""
    target = absolute(path)
    write_bundle(target, app.home, parts, job)
    return target
