# SPDX-License-Identifier: Apache-2.0
"""Timing, in a kernel process that holds its GPU alone: graph replays, clocks, roofs, one round of a campaign."""
