"""Header walkers: what a model file declares, read without an engine and without its weights."""
