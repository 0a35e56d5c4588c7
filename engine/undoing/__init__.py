"""The function of a tool that undoes one of its calls; `laneway.engine.abandoning` runs them."""
