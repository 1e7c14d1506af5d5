"""Some tests with the oldest and the newest versions of what we build on: ``python -m tests.versions``."""
