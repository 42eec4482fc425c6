"""The documents as a site: `python -m website` builds it into `build/website/html`.

The pages are the Markdown files of the repository, as they are, and a reference that is generated
from the models and the command line. Sphinx builds them; a broken link is an error.
"""
