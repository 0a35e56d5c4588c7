"""The engine: takes the calls of a turn from a provider's answer to a provider's message."""
