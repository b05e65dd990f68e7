"""``python -m sluice`` is the command ``sluice``."""

import sys

from ._command import main

sys.exit(main())
