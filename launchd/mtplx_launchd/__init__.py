"""What keeps the daemon always on: the job's description, its template for launchd and for systemd, what installs it.

Owns the job's file, loading and unloading it, and what `uninstall --purge` removes. Never what the daemon does once it
runs, and no root: a job of the user's own, in the user's own session. A job that was stopped is never disabled. The one
thing of root's, the fan helper, has the folder `helper` for itself.
"""
