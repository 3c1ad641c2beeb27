# SPDX-License-Identifier: Apache-2.0
"""The five suites: each test module declares which cases it judges and asserts one thing about them."""
