# SPDX-License-Identifier: Apache-2.0
"""The question whether what is selected compiles to the right machine code."""
