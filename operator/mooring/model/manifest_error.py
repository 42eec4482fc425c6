"""The error for a malformed API object.

Every parser in `mooring.model` raises `ManifestError`, and no other error, for bad input. The
caller that has the whole object adds its kind and name with `under`. Then the simulator prints the
error and stops; the operator logs the error and leaves the object out.
"""


class ManifestError(ValueError):
    """Raised if a field has a value that is not allowed; the text is `where: problem`.

    Attributes:
        where: The field's path, such as `spec.containers[0].resources.requests.cpu`. `under` puts
            the object before it: `Pod team-a/web spec.containers[0]...`.
        problem: The mistake in the value, and a correct form.
    """

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(where, problem)
        self.where = where
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}" if self.where else self.problem

    def under(self, prefix: str) -> "ManifestError":
        """Return the same error with `prefix` (`Pod team-a/web`) in front of its path."""
        return ManifestError(f"{prefix} {self.where}".strip(), self.problem)
