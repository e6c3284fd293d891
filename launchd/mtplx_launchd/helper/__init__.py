"""What installs the fan helper as root: its one file, the checks of every path, the steps, and their undoing.

Owns where the helper lies and how its job reads. It shows what will run as root before anything does; it never decides
that it should, and the helper's own code is `mtplxd.thermal.fand`.
"""
