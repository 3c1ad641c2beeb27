# SPDX-License-Identifier: Apache-2.0
"""The question whether every output element is right."""
