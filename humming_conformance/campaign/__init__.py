# SPDX-License-Identifier: Apache-2.0
"""A run: which kernels meet which cases on which device, and how each pair becomes a verdict."""
