"""Side-by-side measurements: both sides in one run, alternately, with the same threads and inputs."""
