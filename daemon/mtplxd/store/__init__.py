"""What was computed for a prompt before, kept by the tokens it was computed for, in memory and on disk; and sessions.

It owns the keys of blocks, which are held and for how long, how they become files and what is believed of those; and
the file of the named conversations. What a block holds is the engine's, opaque here: threads of its own see bytes, and
never a live array. It runs no model and speaks to no client.
"""
