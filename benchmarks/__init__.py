"""Side-by-side measurements against peers: all with `python -m benchmarks.run`, or one file with `python -m`."""
