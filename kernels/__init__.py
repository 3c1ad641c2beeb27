# SPDX-License-Identifier: Apache-2.0
"""The kernel libraries under test, one module or folder each: the only code that knows a library by name."""
