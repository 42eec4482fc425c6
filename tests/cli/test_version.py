import json

from click.testing import CliRunner

from mooring import __version__
from mooring.cli.version import version


def test_people_and_programs_can_read_the_version() -> None:
    assert CliRunner().invoke(version).stdout == f"mooring {__version__}\n"
    printed = CliRunner().invoke(version, ["-o", "json"]).stdout
    assert json.loads(printed) == {"version": __version__}
