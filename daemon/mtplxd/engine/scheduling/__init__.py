"""Who is served when, and with how much memory: the queue, admission, preemption and turns of the engine.

Pure policy over small records. Clock, sizes and measurements are arguments; nothing here decodes, locks or waits.
"""
