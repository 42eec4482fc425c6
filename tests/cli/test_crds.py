from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from mooring.cli.crds import crds

COMMITTED = Path(__file__).parents[2] / "crds"


def test_the_printed_crds_can_be_applied() -> None:
    documents = [*yaml.safe_load_all(CliRunner().invoke(crds).stdout)]
    assert {document["kind"] for document in documents} == {"CustomResourceDefinition"}
    assert [document["metadata"]["name"] for document in documents] == [
        "queues.scheduling.mooring.dev",
        "schedulingprofiles.scheduling.mooring.dev",
    ]


@pytest.mark.parametrize("name", ["queues", "schedulingprofiles"])
def test_the_committed_files_are_what_is_printed(name: str) -> None:
    printed = CliRunner().invoke(crds, [name]).stdout
    assert (COMMITTED / f"{name}.yaml").read_text() == printed, (
        f"run: mooring crds {name} > crds/{name}.yaml"
    )
