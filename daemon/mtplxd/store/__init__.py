"""What was computed for a prompt before, kept by the tokens it was computed for: block by block, in memory.

It owns the keys of blocks, which are held and for how long. What a block holds is the engine's, opaque here, and only
touched on the thread that put it there; a tier on disk will stand behind the same calls.
"""
