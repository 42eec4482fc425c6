"""`mooring convert`."""

import click
import yaml

from mooring.cli.console import mistakes_reported, note, notes_of, output_option, print_json
from mooring.framework.registry import Registry
from mooring.plugins import SHIPPED
from mooring.policy.imports.kube_scheduler import Settings
from mooring.policy.imports.legacy import PROVIDERS, import_provider
from mooring.policy.profile import DEFAULT_SCHEDULER
from mooring.simulate.manifests import read_manifests
from mooring.simulate.policies import read_policies

__all__ = ["convert"]


@click.command(
    epilog="""\b
Examples:
  mooring convert scheduler-config.yaml > profiles.yaml
  kubectl -n kube-system get cm my-policy -o json | mooring convert - --scheduler-name packed
  mooring convert ClusterAutoscalerProvider"""
)
@click.argument("source", metavar="FILE|PROVIDER")
@click.option(
    "--scheduler-name",
    default=DEFAULT_SCHEDULER,
    show_default=True,
    help="The schedulerName of an old Policy or a provider, which do not say it themselves.",
)
@output_option("yaml", "json")
def convert(source: str, scheduler_name: str, output: str) -> None:
    """Turn older configurations into profiles.

    Prints the SchedulingProfiles that do what FILE (- is standard input) asks for: a
    KubeSchedulerConfiguration v1, or a Policy of Kubernetes 1.22 and before as YAML, JSON or in its
    ConfigMap. PROVIDER is an algorithm provider of that time: DefaultProvider or
    ClusterAutoscalerProvider.
    """
    if source in PROVIDERS:
        profiles = [import_provider(source, scheduler_name)]
    else:
        with mistakes_reported():
            policies = read_policies(read_manifests([source]), Registry(SHIPPED), scheduler_name)
        profiles = [policy.profile for policy in policies]
        notes_of(source, policies)
        for flags in dict.fromkeys(_flags(p.settings) for p in policies if p.settings):
            note(f"{source}: the settings of its process are: mooring run {flags}")
    manifests = [profile.manifest() for profile in profiles]
    if output == "json":
        print_json({"apiVersion": "v1", "kind": "List", "items": manifests})
    else:
        click.echo(yaml.safe_dump_all(manifests, sort_keys=False), nl=False)


def _flags(settings: Settings) -> str:
    """The settings of upstream's file, defaults included, as options of `mooring run`."""
    flags = {
        "qps": f"{settings.qps:g}",
        "burst": settings.burst,
        "initial-backoff": f"{settings.initial_backoff.total_seconds():g}",
        "max-backoff": f"{settings.max_backoff.total_seconds():g}",
    }
    if settings.leader_elect:
        flags |= {
            "lease-duration": f"{settings.lease_duration.total_seconds():g}",
            "renew-deadline": f"{settings.renew_deadline.total_seconds():g}",
            "retry-period": f"{settings.retry_period.total_seconds():g}",
        }
    words = [f"--{name}={value}" for name, value in flags.items()]
    return " ".join(words if settings.leader_elect else [*words, "--no-leader-elect"])
