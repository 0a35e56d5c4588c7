"""A run in the forms of other programs.

- `jsonl`: a fact a line, and back: for `jq`, and for whoever keeps facts elsewhere.
- `mermaid`: the graph of each turn, for a page or a pull request.
- `chrome`: lanes, waits and dependencies on a time axis, for Perfetto.
- `tracks`: where what overlaps stands in it.
- `spans`: OpenTelemetry, after the fact; `otlp` writes them as OTLP JSON.
- `escaping`: what models and tools wrote stays text in all of them.
"""
