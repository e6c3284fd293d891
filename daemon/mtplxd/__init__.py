"""The daemon: model residency, the speculative engine and everything that must outlive a client."""

__version__ = "0.1.0"
PROTOCOL = 1
"""Version of the gRPC contract; both sides must agree on it."""
