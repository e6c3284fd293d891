"""What is loaded: the memory plan, shared loads, keep-alive and eviction.

It decides whether and when a model is in memory and keeps it there while somebody uses it. It never decodes.
"""
