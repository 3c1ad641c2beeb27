# SPDX-License-Identifier: Apache-2.0
"""Makes `strategies` importable: under import mode importlib a test's folder is not on the path."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
