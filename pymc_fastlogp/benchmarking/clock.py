"""The clock of all paired measurements."""

import time

# Windows counts the time of a process in steps of 16 ms: too coarse for a round.
COARSEST = 1e-4


IS_FINE = time.get_clock_info("process_time").resolution <= COARSEST

# Processor time of this process, all threads: on a busy machine other programs take turns on the core,
# some milliseconds each, which the time of day would count. Where that is too coarse, the time of day.
seconds_now = time.process_time if IS_FINE else time.perf_counter
