"""Lanes: the queues of resources, and what a claim or a command line takes of them."""
