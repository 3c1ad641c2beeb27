# SPDX-License-Identifier: Apache-2.0
"""vLLM's own choice of a kernel for a checkpoint's layer, asked without a GPU, in an environment of its own."""
