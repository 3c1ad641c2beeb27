# SPDX-License-Identifier: Apache-2.0
"""Machine code without a GPU: compiling for any architecture, and reading what the compiler made of it."""
