"""Thin clients of the daemon: a Python client, the `mtplx` command line and the gateway."""
