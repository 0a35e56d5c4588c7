"""Laneway before MCP servers: any client gets lanes, policy, approvals and the journal.

config    what stands in config.json
gateway   the engine behind it, the tools as a client sees them, one server for all clients
sessions  a client's session is a run, each of its calls a call within it
serving   stdio or streamable HTTP towards the client
"""
