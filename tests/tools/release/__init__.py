"""What a release consists of, made from a commit.

`python -m release` makes everything into `dist/`; `make release` calls it, docs/releasing.md tells
what is done with it. The image is built by buildah on a base of Debian's packages, so that no image
registry is needed.
"""
