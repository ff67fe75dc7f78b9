from manyview.cli import main

raise SystemExit(main())
