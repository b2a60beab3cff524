# SPDX-License-Identifier: GPL-2.0-or-later
"""``python -m bootpress``."""

import sys

from bootpress.cli import main

sys.exit(main())
