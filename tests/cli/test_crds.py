import yaml
from click.testing import CliRunner

from mooring.cli.crds import crds


def test_the_printed_crds_can_be_applied() -> None:
    document = yaml.safe_load(CliRunner().invoke(crds).stdout)
    assert document["kind"] == "CustomResourceDefinition"
    assert document["metadata"]["name"] == "schedulingprofiles.scheduling.mooring.dev"
