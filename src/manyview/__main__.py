"""`python -m manyview` is `manyview`."""

from manyview.cli import main

raise SystemExit(main())
