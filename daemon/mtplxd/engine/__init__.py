"""Decoding: the scheduler, the one thread that touches MLX, rows, the round and its exact acceptance, and text.

Owns draft → verify → accept → commit. Never opens a file, never sees protobuf, never decides what stays in memory.
"""
