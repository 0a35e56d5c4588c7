"""For tests of the engine and of its hosts: virtual time, scripted tools, contract suites."""
