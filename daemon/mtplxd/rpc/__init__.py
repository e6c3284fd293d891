"""The wire: one servicer a service on a guarded Unix socket, and the one place where typed errors become statuses.

It checks a client's words, hands work on and carries events back. It touches no MLX array and holds no rule of
another room.
"""
