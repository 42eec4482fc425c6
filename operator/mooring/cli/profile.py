"""The commands `mooring profile check` and `diff`: find mistakes in profiles, and compare them."""

import sys
from dataclasses import asdict
from typing import Any, Final

import click

from mooring.cli.checking import CheckedMistake, CheckedProfile, Report, check_files
from mooring.cli.comparison_table import print_comparison
from mooring.cli.console import (
    BAD_INPUT,
    DONE,
    NO,
    connection_options,
    mistakes_reported,
    note,
    output_option,
    print_annotation,
    print_json,
    print_table,
    printable,
)
from mooring.cli.differences import Difference, differences, in_short
from mooring.cli.inputs import live_manifests
from mooring.cli.progress import Progress
from mooring.framework.registry import Registry
from mooring.plugins import SHIPPED
from mooring.simulate.compare import compare
from mooring.simulate.inputs import inputs_of
from mooring.simulate.load_profiles import profile_objects, read_profiles
from mooring.simulate.manifests import display_name


@click.group(
    epilog="""\b
Examples:
  mooring profile check manifests/
  mooring profile diff old.yaml new.yaml"""
)
def profile() -> None:
    """Check and compare profiles."""


@profile.command(
    short_help="Check whether profiles are valid.",
    epilog="""\b
Examples:
  mooring profile check profile.yaml
  mooring profile check manifests/ scheduler-config.yaml
  kubectl get sprof -o yaml | mooring profile check - -o json
  kubectl get nodes -o yaml | mooring profile check profile.yaml -
  mooring profile check policies/ -o github   # in a workflow of GitHub""",
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@output_option("text", "json", "github")
def check(paths: tuple[str, ...], output: str) -> None:
    """Check whether the profiles in PATHs are valid, and print every mistake.

    A PATH is a file, a folder with YAML and JSON files, or - for standard input. Profiles are
    SchedulingProfiles, KubeSchedulerConfigurations and Policies; objects of other kinds are
    skipped. Plugins are imported and built as a running scheduler does it, so the plugins of your
    image must be installed here.

    If there are nodes in PATHs, a warning names each label or resource that a rule reads and that
    no node has.

    Exits with 0 if all profiles are valid, 1 if a profile is not valid, 2 if a file cannot be read
    or there is no profile.
    """
    report = check_files(paths, Registry(SHIPPED))
    if not (report.profiles or report.mistakes or report.unreadable):
        message = "contains no scheduling profile"
        report.unreadable += (
            CheckedMistake(display_name(path), None, "", message) for path in paths
        )
    _PRINTERS[output](report)
    sys.exit(BAD_INPUT if report.unreadable else NO if report.mistakes else DONE)


@profile.command(
    short_help="Compare profiles after all defaults are filled in.",
    epilog="""\b
Examples:
  mooring profile diff old.yaml new.yaml
  mooring profile diff old.yaml new.yaml --cluster
  kubectl get sprof spread -o yaml | mooring profile diff - spread.yaml""",
)
@click.argument("a", type=click.Path())
@click.argument("b", type=click.Path())
@click.option(
    "--cluster",
    is_flag=True,
    help="Show too which pods of the live cluster would move, as simulate --compare does.",
)
@connection_options
@output_option("table", "json")
def diff(
    a: str, b: str, kubeconfig: str | None, context: str | None, output: str, *, cluster: bool
) -> None:
    """Compare the profiles of the files A and B after all defaults are filled in.

    If each file contains one profile, the two are compared even if their names differ; otherwise
    profiles of the same name are compared. Exits with 0 if nothing differs, 1 if something differs,
    2 for bad input.
    """
    if (kubeconfig or context) and not cluster:
        raise click.UsageError("--kubeconfig and --context need --cluster")
    registry = Registry(SHIPPED)
    with mistakes_reported():
        before, after = (read_profiles(profile_objects(file), registry) for file in (a, b))
        found = differences(before, after)
        comparison = None
        if cluster:
            with Progress() as progress:
                objects = live_manifests(kubeconfig, context, progress)
                comparison = compare(
                    inputs_of(objects, registry),
                    registry,
                    before,
                    after,
                    progress=lambda each, total: progress.counting(each, "placing pods", total),
                )
    if output == "json":
        moved = {} if comparison is None else {"cluster": comparison.document()}
        print_json({"differences": [_difference(d) for d in found], **moved})
    else:
        rows = [(d.profile, d.field, *in_short(d)) for d in found]
        if rows:
            print_table(("PROFILE", "FIELD", "A", "B"), rows, prose=("A", "B"))
        if comparison is not None:
            click.echo()
            print_comparison(comparison, output, None, None)
    sys.exit(NO if found else DONE)


def _print_text(report: Report) -> None:
    for checked in report.profiles:
        loaded = checked.loaded
        names = ", ".join(loaded.profile.scheduler_names)
        valid = f"{loaded.profile.name}: valid; for pods of schedulerName {names}"
        click.echo(printable(f"{checked.file}: {valid}"))
    for mistake in report.mistakes:
        click.echo(printable(str(mistake)))
    for unreadable in report.unreadable:
        click.echo(f"error: {printable(str(unreadable))}", err=True)
    for checked in report.profiles:
        for warning in checked.warnings:
            click.echo(printable(f"warning: {checked.file}: {warning}"), err=True)
    for line in dict.fromkeys(f"{c.file}: {said}" for c in report.profiles for said in c.notes):
        note(line)
    if report.skipped:
        kinds = ", ".join(f"{kind} ({count})" for kind, count in sorted(report.skipped.items()))
        note(f"skipped objects of other kinds: {kinds}")


def _print_json(report: Report) -> None:
    print_json(
        {
            "valid": not (report.mistakes or report.unreadable),
            "profiles": [_as_json(checked) for checked in report.profiles],
            "errors": [asdict(found) for found in (*report.mistakes, *report.unreadable)],
        }
    )


def _print_github(report: Report) -> None:
    title = "mooring profile check"
    for found in (*report.mistakes, *report.unreadable):
        text = ": ".join(filter(None, (found.path, found.message)))
        print_annotation("error", found.file, found.line, title, text)
    for checked in report.profiles:
        for warning in checked.warnings:
            print_annotation("warning", checked.file, checked.line, title, str(warning))
        for said in checked.notes:
            print_annotation("notice", checked.file, checked.line, title, str(said))


_PRINTERS: Final = {"text": _print_text, "json": _print_json, "github": _print_github}


def _as_json(checked: CheckedProfile) -> dict[str, Any]:
    loaded = checked.loaded
    effective = loaded.effective.policy(loaded.profile)
    return {
        "name": loaded.profile.name,
        "file": checked.file,
        "line": checked.line,
        "effective": effective.model_dump(mode="json", by_alias=True, exclude_none=True),
        "warnings": [{"path": said.path, "message": said.message} for said in checked.warnings],
        "notes": [{"path": said.path, "message": said.message} for said in checked.notes],
    }


def _difference(d: Difference) -> dict[str, str | None]:
    return {"profile": d.profile, "field": d.field, "a": d.before, "b": d.after}
