"""Side-by-side measurements: both sides in one run, alternately, with the same threads and inputs."""

import os

# Both are read once, as torch is imported. The profiler would lament the lack of a GPU; and threads that spin while
# they wait would take the cores from the workers of lightly's loader, which have none to themselves.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
