"""`python -m recalld_server` is `recalld`."""

import sys

from recalld_server.cli import main

sys.exit(main())
