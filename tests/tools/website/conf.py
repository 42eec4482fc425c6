"""The configuration of Sphinx for the site; it names no other host."""

project = "Mooring"
author = "the authors of Mooring"
copyright = "Apache-2.0"  # noqa: A001 - the name that Sphinx reads
extensions = ["myst_parser"]
exclude_patterns = ["manifests", "crds"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
nitpicky = True
highlight_language = "none"
html_theme = "furo"
html_title = "Mooring"
html_show_sphinx = False
html_copy_source = False
html_use_index = False
