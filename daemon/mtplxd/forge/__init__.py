"""From a checkpoint to a verdict that can be trusted: the steps of a build, what each leaves on disk, heads trained.

Its heavy steps run in a worker process that the daemon starts; nothing here measures what `tune` measures.
"""
