"""The documents as a site: `python -m website` builds it into `build/website/html`.

The pages are the unchanged Markdown files of the repository, and reference pages generated from the
CRDs and the command line. Sphinx builds them; a broken link is an error.
"""
