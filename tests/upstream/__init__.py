"""The tests of PyTensor, PyMC and nutpie, without the plugin and with it: ``python -m tests.upstream``."""
