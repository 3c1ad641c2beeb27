# SPDX-License-Identifier: Apache-2.0
"""Hypothesis draws the same examples in every run and is never judged by the clock."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
