# SPDX-License-Identifier: Apache-2.0
"""The question whether a library chooses what it should."""
