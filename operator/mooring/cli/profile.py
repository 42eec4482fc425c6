"""`mooring profile check` and `mooring profile diff`."""

import sys
from typing import Any

import click

from mooring.cli.console import (
    DONE,
    NO,
    mistakes_reported,
    output_option,
    print_json,
    print_notes,
    print_table,
)
from mooring.cli.differences import Difference, differences, in_short
from mooring.framework.registry import Registry
from mooring.plugins import SHIPPED
from mooring.simulate.manifests import InputError, read_manifests
from mooring.simulate.profiles import InvalidProfile, LoadedProfile, load_profiles

__all__ = ["profile"]


@click.group()
def profile() -> None:
    """Check and compare profiles."""


@profile.command(
    epilog="""\b
Examples:
  mooring profile check profile.yaml
  mooring profile check scheduler-config.yaml -o json"""
)
@click.argument("file")
@output_option("text", "json")
def check(file: str, output: str) -> None:
    """Check whether the profiles of FILE are valid, and print every mistake.

    FILE (- is standard input) contains SchedulingProfiles, a KubeSchedulerConfiguration or a
    Policy. Exits with 0 if all are valid, 1 if one is not, 2 if the file contains none.
    """
    with mistakes_reported():
        try:
            profiles = load_profiles(read_manifests([file]), Registry(SHIPPED))
        except InvalidProfile as invalid:
            _report_invalid(invalid, output)
            sys.exit(NO)
        if not profiles:
            raise InputError(f"{file}: contains no scheduling profile")
    if output == "json":
        print_json({"valid": True, "profiles": [_as_json(loaded) for loaded in profiles]})
        return
    for loaded in profiles:
        names = ", ".join(loaded.profile.scheduler_names)
        click.echo(f"{loaded.profile.name}: valid; for pods of schedulerName {names}")
    print_notes(file, profiles)


@profile.command(
    epilog="""\b
Examples:
  mooring profile diff old.yaml new.yaml
  kubectl get sprof spread -o yaml | mooring profile diff - spread.yaml"""
)
@click.argument("a")
@click.argument("b")
@output_option("table", "json")
def diff(a: str, b: str, output: str) -> None:
    """Compare the profiles of the files A and B after all defaults are filled in.

    If each file contains one profile, the two are compared even if their names differ; otherwise
    profiles of the same name are compared. Exits with 0 if nothing differs, 1 if something does, 2
    for bad input.
    """
    registry = Registry(SHIPPED)
    with mistakes_reported():
        before, after = (load_profiles(read_manifests([file]), registry) for file in (a, b))
        found = differences(before, after)
    if output == "json":
        print_json({"differences": [_difference(d) for d in found]})
    elif found:
        rows = [(d.profile, d.field, *in_short(d)) for d in found]
        print_table(("PROFILE", "FIELD", "A", "B"), rows, prose=("A", "B"))
    sys.exit(NO if found else DONE)


def _report_invalid(invalid: InvalidProfile, output: str) -> None:
    if output == "text":
        click.echo(str(invalid))
        return
    errors = [{"path": error.path, "message": error.message} for error in invalid.errors]
    print_json({"valid": False, "source": invalid.source, "errors": errors})


def _as_json(loaded: LoadedProfile) -> dict[str, Any]:
    effective = loaded.effective.policy(loaded.profile)
    return {
        "name": loaded.profile.name,
        "effective": effective.model_dump(mode="json", by_alias=True, exclude_none=True),
        "notes": [{"path": said.path, "message": said.message} for said in loaded.notes],
    }


def _difference(d: Difference) -> dict[str, str | None]:
    return {"profile": d.profile, "field": d.field, "a": d.before, "b": d.after}
