# SPDX-License-Identifier: Apache-2.0
"""The oracle: exact reference, error bound from a contract, comparison and diagnosis."""
