"""The fan helper `mtplxd-fand`: holds fans for whoever renews a lease, else leaves them to the system. Nothing else.

It runs as root under the system's own Python (3.9 or newer) from one file, so it imports only the standard library and
its own modules, relatively. It decides nothing about when fans should be held; that is its clients' part.
"""
