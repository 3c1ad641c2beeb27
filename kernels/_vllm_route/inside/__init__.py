# SPDX-License-Identifier: Apache-2.0
"""What runs inside a vLLM environment, started as scripts or copied into it; never imported here."""
