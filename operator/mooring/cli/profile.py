"""`mooring profile check` and `mooring profile diff`."""

import sys
from typing import Any

import click

from mooring.cli.console import (
    DONE,
    NO,
    mistakes_reported,
    notes_of,
    output_option,
    print_json,
    print_table,
)
from mooring.cli.differences import Difference, differences
from mooring.framework.registry import Registry
from mooring.plugins import SHIPPED
from mooring.simulate.manifests import InputError, read_manifests
from mooring.simulate.policies import InvalidPolicy, Policy, read_policies

__all__ = ["profile"]


@click.group()
def profile() -> None:
    """Check and compare scheduling policies."""


@profile.command(
    epilog="""\b
Examples:
  mooring profile check profile.yaml
  mooring profile check scheduler-config.yaml -o json"""
)
@click.argument("file")
@output_option("text", "json")
def check(file: str, output: str) -> None:
    """Say whether the policies of FILE are valid, and what is wrong if they are not.

    FILE (- is standard input) holds SchedulingProfiles, or a KubeSchedulerConfiguration. Exits with
    0 if all are valid, 1 if one is not, 2 for a file that holds no policy.
    """
    with mistakes_reported():
        try:
            policies = read_policies(read_manifests([file]), Registry(SHIPPED))
        except InvalidPolicy as invalid:
            _report_invalid(invalid, output)
            sys.exit(NO)
        if not policies:
            raise InputError(f"{file}: holds no scheduling policy")
    if output == "json":
        print_json({"valid": True, "profiles": [_as_json(policy) for policy in policies]})
        return
    for policy in policies:
        names = ", ".join(policy.profile.scheduler_names)
        click.echo(f"{policy.profile.name}: valid; for pods of schedulerName {names}")
    notes_of(file, policies)


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
    """Show in what the policies of the files A and B differ once all defaults are filled in.

    One policy in each file is compared whatever its name; several are compared by name. Exits with
    0 if nothing differs, 1 if something does, 2 for bad input.
    """
    registry = Registry(SHIPPED)
    with mistakes_reported():
        before, after = (read_policies(read_manifests([file]), registry) for file in (a, b))
        found = differences(before, after)
    if output == "json":
        print_json({"differences": [_difference(d) for d in found]})
    elif found:
        rows = [(d.profile, d.field, d.before or "-", d.after or "-") for d in found]
        print_table(("PROFILE", "FIELD", "A", "B"), rows)
    sys.exit(NO if found else DONE)


def _report_invalid(invalid: InvalidPolicy, output: str) -> None:
    if output == "text":
        click.echo(str(invalid))
        return
    errors = [{"path": error.path, "message": error.message} for error in invalid.errors]
    print_json({"valid": False, "source": invalid.source, "errors": errors})


def _as_json(policy: Policy) -> dict[str, Any]:
    effective = policy.effective.policy(policy.profile)
    return {
        "name": policy.profile.name,
        "effective": effective.model_dump(mode="json", by_alias=True, exclude_none=True),
        "notes": [{"path": said.path, "message": said.message} for said in policy.notes],
    }


def _difference(d: Difference) -> dict[str, str | None]:
    return {"profile": d.profile, "field": d.field, "a": d.before, "b": d.after}
