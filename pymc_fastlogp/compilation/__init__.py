"""Compilation of a model: its graphs, their rewriting, and the model object that nutpie samples."""
