# SPDX-License-Identifier: Apache-2.0
"""Root configuration: `pytester`, with which tests/ tests the plugin, may only be asked for here.

The plugin itself is an entry point; pytest refuses to load it twice, so it is not named here.
"""

pytest_plugins = ["pytester"]
