"""The command `mooring convert`: turns kube-scheduler's configuration into SchedulingProfiles."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from mooring.cli.console import (
    mistakes_reported,
    note,
    note_ignored,
    output_option,
    print_json,
    print_notes,
    print_yaml,
)
from mooring.framework.registry import Registry
from mooring.model.kubernetes_rules import KUBERNETES_RULES
from mooring.model.manifest_error import ManifestError
from mooring.plugins import SHIPPED
from mooring.policy.imports.configuration import ProcessSettings
from mooring.policy.imports.old_policy import PROVIDERS, import_provider
from mooring.policy.imports.queues import QueueImport
from mooring.policy.profile import (
    DEFAULT_SCHEDULER,
    KubernetesVersion,
    Match,
    SchedulingProfile,
    SchedulingProfileSpec,
)
from mooring.policy.profile_errors import ProfileInvalid
from mooring.policy.reading import read
from mooring.simulate.load_profiles import contains_profile, profile_objects, read_profiles
from mooring.simulate.manifests import InputError, Manifest, display_name

_LEASE: Final = (
    "the shipped RBAC allows the Lease mooring-system/mooring only: change its Role, or leave out "
    "--lease-namespace and --lease-name"
)

_SHADOW: Final = (
    "is in mode Shadow, and binds nothing, because pods must have one scheduler; once "
    "kube-scheduler has another name, convert with --active, or remove mode (docs/installing.md)"
)
_NO_EXTENDERS: Final = "spec.extenders is left out: extenders are not called in mode Shadow"


def _completed(
    _context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    providers = [CompletionItem(name) for name in PROVIDERS if name.startswith(begun)]
    return [*providers, CompletionItem(begun, type="file")]


def _scheduler_name(_context: click.Context, _parameter: click.Parameter, given: str) -> str:
    try:
        read(Match, {"schedulerNames": [given]}, "")
    except ProfileInvalid as invalid:
        raise click.BadParameter(invalid.errors[0].message) from None
    return given


@click.command(
    epilog="""\b
Examples:
  mooring convert scheduler-config.yaml > profiles.yaml
  kubectl -n kube-system get cm policy -o json | mooring convert - -s packed
  mooring convert ClusterAutoscalerProvider -s packed
  mooring convert scheduler-config.yaml --kubernetes 1.36
  mooring convert scheduler-config.yaml --active   # not beside kube-scheduler
  kubectl get clusterqueues,cohorts,localqueues -A -o json | mooring convert -
  kubectl get nodes,queues.scheduling.volcano.sh -o json | mooring convert -"""
)
@click.argument("source", metavar="FILE|PROVIDER", shell_complete=_completed)
@click.option(
    "-s",
    "--scheduler-name",
    default=DEFAULT_SCHEDULER,
    show_default=True,
    callback=_scheduler_name,
    help="The schedulerName for a Policy or a provider, which contain none.",
)
@click.option(
    "--active",
    is_flag=True,
    help="Let the profile for default-scheduler bind pods: kube-scheduler has another name now.",
)
@click.option(
    "--kubernetes",
    type=click.Choice([*KUBERNETES_RULES]),
    metavar="VERSION",
    help="Have the profiles decide as kube-scheduler of this version, whatever the API server's "
    f"is: {', '.join(KUBERNETES_RULES)}.",
)
@output_option("yaml", "json")
def convert(
    source: str,
    scheduler_name: str,
    kubernetes: KubernetesVersion | None,
    output: str,
    *,
    active: bool,
) -> None:
    """Convert policies and queues of other schedulers to Mooring's.

    FILE (- is standard input) is YAML or JSON. It contains a KubeSchedulerConfiguration v1, v1beta3
    or v1beta2, or a Policy of Kubernetes 1.22 and before. Both may be in a ConfigMap, the Policy
    under the key policy.cfg. PROVIDER is an algorithm provider of that time: DefaultProvider or
    ClusterAutoscalerProvider. Prints SchedulingProfiles. Notes on standard error say which settings
    become flags of mooring run, and which fields and plugins have no counterpart in Mooring.

    A profile for default-scheduler is printed in mode Shadow: it decides for comparison, and
    kube-scheduler goes on to bind the pods.

    Other objects in FILE become Queues: ClusterQueues and Cohorts of Kueue, Queues of Volcano and
    KAI, and all ElasticQuotas. LocalQueues of Kueue only restrict the namespaces of a Queue. For
    Queues of Volcano and KAI, FILE must also contain the Nodes that they share.
    """
    queues = list[dict[str, Any]]()
    if source in PROVIDERS:
        profiles = [import_provider(source, scheduler_name)]
    else:
        with mistakes_reported():
            queues, others = _queues(source, [*profile_objects(source)])
            profiles = _profiles(source, others, scheduler_name)
    if kubernetes is not None:
        profiles = [_pinned(profile, kubernetes) for profile in profiles]
    manifests = queues + [
        (profile if active else _beside_kube_scheduler(profile, source)).manifest()
        for profile in profiles
    ]
    if output == "json":
        print_json({"apiVersion": "v1", "kind": "List", "items": manifests})
    else:
        print_yaml(*manifests)


def _queues(
    source: str, manifests: Sequence[Manifest]
) -> tuple[list[dict[str, Any]], Sequence[Manifest]]:
    """Convert other schedulers' queues; return Mooring's Queues and the other manifests."""
    imported, others = QueueImport(), list[Manifest]()
    for manifest in manifests:
        with manifest.locating_errors():
            if not imported.read(manifest.group, manifest.kind, manifest.raw):
                others.append(manifest)
    if not imported.has_queues:
        return [], manifests
    try:
        queues = imported.manifests()
    except ManifestError as error:
        raise InputError(f"{display_name(source)}: {error}") from None
    print_notes(source, imported.notes)
    note_ignored(Counter(each.kind for each in others if not contains_profile(each)), source)
    return queues, [*filter(contains_profile, others)]


def _profiles(
    source: str, manifests: Sequence[Manifest], scheduler_name: str
) -> list[SchedulingProfile]:
    loaded = read_profiles(manifests, Registry(SHIPPED), scheduler_name)
    print_notes(source, (said for found in loaded for said in found.notes))
    for settings in dict.fromkeys(p.settings for p in loaded if p.settings):
        note(f"{source}: run it with: mooring run {_flags(settings)}")
        if settings.leader_elect and (settings.lease_namespace or settings.lease_name):
            note(f"{source}: {_LEASE}")
    return [found.profile for found in loaded]


def _pinned(profile: SchedulingProfile, kubernetes: KubernetesVersion) -> SchedulingProfile:
    spec = profile.spec.model_copy(update={"kubernetes_version": kubernetes})
    return replace(profile, spec=spec)


def _beside_kube_scheduler(profile: SchedulingProfile, source: str) -> SchedulingProfile:
    """Put the profile into mode Shadow if it would schedule kube-scheduler's pods."""
    if DEFAULT_SCHEDULER not in profile.scheduler_names:
        return profile
    note(f"{source}: {profile.name}: {_SHADOW}")
    spec = profile.spec.model_copy(update={"mode": "Shadow"})
    if spec.extenders:
        note(f"{source}: {profile.name}: {_NO_EXTENDERS}")
        kept = spec.model_fields_set - {"extenders"}
        spec = SchedulingProfileSpec(**{name: value for name, value in spec if name in kept})
    return replace(profile, spec=spec)


def _flags(settings: ProcessSettings) -> str:
    flags: dict[str, object] = {
        "kubeconfig": settings.kubeconfig,
        "initial-backoff": f"{settings.initial_backoff.total_seconds():g}",
        "max-backoff": f"{settings.max_backoff.total_seconds():g}",
    }
    if settings.qps > 0:  # kube-scheduler has no limit with a negative one
        flags |= {"qps": f"{settings.qps:g}", "burst": settings.burst}
    if settings.leader_elect:
        flags |= {
            "lease-namespace": settings.lease_namespace,
            "lease-name": settings.lease_name,
            "lease-duration": f"{settings.lease_duration.total_seconds():g}",
            "renew-deadline": f"{settings.renew_deadline.total_seconds():g}",
            "retry-period": f"{settings.retry_period.total_seconds():g}",
        }
    words = [shlex.quote(f"--{name}={value}") for name, value in flags.items() if value != ""]
    return " ".join(words if settings.leader_elect else [*words, "--no-leader-elect"])
