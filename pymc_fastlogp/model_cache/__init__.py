"""Cache of compiled models on disk: the key of a model, the record of its callbacks, and their files."""
