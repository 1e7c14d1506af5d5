"""Some tests with the oldest and the newest supported versions: ``python -m tests.versions``."""
