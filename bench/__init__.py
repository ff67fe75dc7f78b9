"""Side-by-side measurements: both sides in one run, alternately, with the same threads and inputs."""

import os

# Both are read once, as torch is imported. The profiler would lament the lack of a GPU; and where two sides share a
# process, the idle threads of one that spin would take the cores from the other.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
if os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE") == "DEFAULT":  # no value of OpenMP's: what a user has
    del os.environ["OMP_WAIT_POLICY"]
