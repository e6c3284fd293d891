"""`mtplx doctor`: is everything here that the daemon needs?"""

from __future__ import annotations

from dataclasses import asdict

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.shape import leaf


@leaf("doctor", "doctor", "doctor --json")
@pass_app
def doctor(app: App, /) -> None:
    """Check interpreter, machine, mlx, BLAS, disk, memory, socket and daemon; exit 1 if anything is wrong.

    Works without a daemon and where mlx cannot be imported.
    """
    from mtplx_client.doctor.checks import run_checks

    checks = []
    for check in run_checks(app.home, app.socket, app.timeout):
        checks.append(check)
        if not app.json:
            app.output.line(f"{'ok   ' if check.ok else 'WRONG'} {check.name:<12} {check.detail}")
            if check.fix and not check.ok:
                app.output.line(f"{'':>19}{check.fix}")
    if app.json:
        app.output.document(
            {"checks": [{**asdict(check), "fix": "" if check.ok else check.fix} for check in checks]}
        )
    if not all(check.ok for check in checks):
        app.exit_code = 1
