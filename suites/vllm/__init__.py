# SPDX-License-Identifier: Apache-2.0
"""The question whether vLLM's own selection gives a layer a backend that can serve it."""
