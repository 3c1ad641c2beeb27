# SPDX-License-Identifier: Apache-2.0
"""The question whether a kernel is as fast as its baseline, its neighbours and its roof say."""
