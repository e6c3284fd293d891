"""A stand-in for launchd and for a user's systemd: a process that reads the job's real file, honours its keys and runs
the real daemon under it, behind a `launchctl` and a `systemctl` with the verbs, words and exit codes of the real ones.

What it knows of them is in `launchctl` and `systemctl`, with the sources. Times of the job's file are scaled by a
factor, so that thirty seconds pass in less than one. It knows nothing of the daemon.
"""
