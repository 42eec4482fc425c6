"""Makes the files of a release from a commit.

`make release` calls `python -m release`, which writes all files into `dist/`; docs/releasing.md
describes how to publish them. buildah builds the image on a base of Debian's packages, so that no
image registry is needed.
"""
