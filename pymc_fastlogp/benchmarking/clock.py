"""The clock of all paired measurements."""

import time

# Largest resolution of a useful clock, in seconds: Windows counts the time of a process in steps of 16 ms.
COARSEST = 1e-4
IS_FINE = time.get_clock_info("process_time").resolution <= COARSEST

# CPU time of this process, all threads: wall time would include other programs that share the core.
# Wall time is the fallback for a coarse CPU clock.
seconds_now = time.process_time if IS_FINE else time.perf_counter
