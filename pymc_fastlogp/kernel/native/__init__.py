"""Machine code: compiled for the host CPU, cached on disk, loaded at most once per process."""
