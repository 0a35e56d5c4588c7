"""What a run does, told to OpenTelemetry while it does it: spans, events, links and metrics.

    facts, as they are kept ─▶ listener ─▶ courses (what befell each call)
                                        ─▶ spans    one table: fact ─▶ what it does to spans
                                        ─▶ metrics  one table: fact ─▶ what it counts
    the body of a call ─▶ listener: its attempt's span is the current one in there

Telemetry hears facts and changes nothing. Where no SDK listens, nothing of this but these two is
even imported, and a call costs what it cost. Names follow the GenAI semantic conventions
(semantic-conventions-genai, in development) wherever they have one; the rest begins with
`laneway.`. docs/telemetry.md lists all of it.

- `options`: what the host chooses;
- `listening`: whether anybody listens;
- `carrying`: the trace context for MCP requests, processes and whatever else leaves the process.
"""
