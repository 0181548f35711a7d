"""Model files without an engine: what they declare, their bytes as they lie there, and new files that appear whole."""
