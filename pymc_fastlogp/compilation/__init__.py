"""Compile a model: its graphs, their rewriting, and the model objects that nutpie samples."""
