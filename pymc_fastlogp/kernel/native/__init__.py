"""Machine code: compiled for this CPU, kept on disk, loaded once in a process."""
