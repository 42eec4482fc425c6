"""Mistakes put into Mooring on purpose, each of which the simulation must find.

    python -m simulation.mutations              every mistake, 1,000 seeds at most
    python -m simulation.mutations late-read    one of them

A mistake is a change of the source: each old text stands exactly once in its file. The changed
sources are a copy below a temporary folder, which a process of its own imports.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from simulation.actors import ACTORS
from simulation.scenario import draw
from simulation.world import run

_OPERATOR: Final = Path(__file__).parents[2] / "operator"
_MOST_SEEDS: Final = 1_000


@dataclass(frozen=True)
class Mutation:
    """One mistake."""

    name: str
    about: str
    file: str
    """Below operator/mooring/."""
    old: str
    new: str


MUTATIONS: Final = (
    Mutation(
        "name-for-uid",
        "the mirror knows pods by name, not by uid",
        "model/objects.py",
        'return text(raw["metadata"], "uid", "metadata") if kind is Kind.POD else '
        "object_key(kind, raw)",
        "return object_key(kind, raw)",
    ),
    Mutation(
        "missed-hint",
        "an event that comes while a pod is tried does not count",
        "queueing/queue.py",
        "since = self._in_flight.leave(queued.pod.uid)\n        queued.unschedulable_count",
        "self._in_flight.leave(queued.pod.uid)\n        since = self._events.end\n"
        "        queued.unschedulable_count",
    ),
    Mutation(
        "assume-not-undone",
        "a pod whose binding fails stays assumed on its node",
        "engine/assumed.py",
        "        undo.callback(state.forget, pod)\n",
        "",
    ),
    Mutation(
        "late-read",
        "what a pod was when it was read counts, although a watch has shown its end meanwhile",
        "mirroring/comparer.py",
        'return raw if raw["metadata"]["uid"] == uid and uid not in gone else None',
        'return raw if raw["metadata"]["uid"] == uid else None',
    ),
    Mutation(
        "write-without-lease",
        "a write that waited for a connection is sent although the lease is lost",
        "kube/transport.py",
        "may_send=partial(self._may_send, request) if request.is_write else None,",
        "may_send=None,",
    ),
    Mutation(
        "lost-answer",
        "a Binding whose answer is lost is taken for one that failed",
        "kube/writes.py",
        "            pod = await self._read(namespace, name, uid)\n"
        '            if pod is None or pod["spec"].get("nodeName") != node:\n',
        '            pod = await self._read(namespace, name, "")\n'
        '            if pod is None or pod["spec"].get("nodeName") != node:\n',
    ),
    Mutation(
        "expired-version-kept",
        "a watch that is refused for its old version asks for the same version again",
        "kube/reflector.py",
        "        if isinstance(error, GoneError):\n            self._version = None\n",
        "",
    ),
    Mutation(
        "relist-removes-nothing",
        "what is missing in a new list stays",
        "state/cluster.py",
        "                self.delete(kind, key)\n            pause()\n",
        "                pass\n            pause()\n",
    ),
    Mutation(
        "gone-in-flight",
        "a pod that is deleted while it is tried goes on",
        "queueing/queue.py",
        "            self._in_flight.leave(uid)\n        self._names.remove(",
        "            pass\n        self._names.remove(",
    ),
    Mutation(
        "backoff-without-end",
        "a pod that failed with an error never leaves its backoff",
        "queueing/queue.py",
        "        self._flush_backoff(self._error_backoff, now)\n",
        "",
    ),
    Mutation(
        "kopf-not-compared",
        "pods that were deleted while kopf did not watch stay pending",
        "mirroring/comparer.py",
        "                compared.gone(uid)\n",
        "                pass\n",
    ),
    Mutation(
        "equal-victims",
        "a pod makes room for another one of its own priority",
        "plugins/default_preemption/potential_victims.py",
        "(columns.priority < pod.spec.priority)",
        "(columns.priority <= pod.spec.priority)",
    ),
    Mutation(
        "annotations-popped",
        "a Binding that is sent again has lost the cards of its pod",
        "engine/api.py",
        "annotations = self._annotations.get(pod.uid)",
        "annotations = self._annotations.pop(pod.uid, None)",
    ),
    Mutation(
        "minimum-ignored",
        "a gang is placed as soon as one member fits",
        "state/pod_groups.py",
        "return self.definition.minimum if self.definition is not None else 0",
        "return min(1, self.definition.minimum) if self.definition is not None else 0",
    ),
    Mutation(
        "reserved-for-nobody",
        "what a plugin reserved for a pod that is not bound stays reserved",
        "engine/assumed.py",
        "        undo.callback(unreserve, pipeline, pod, node)\n",
        "",
    ),
    Mutation(
        "plugin-without-timeout",
        "a plugin that hangs while it binds a pod is waited for",
        "engine/binding.py",
        "asyncio.wait((task,), timeout=seconds)",
        "asyncio.wait((task,))",
    ),
    Mutation(
        "binding-after-the-attempt",
        "a plugin that goes on after its attempt may bind the pod",
        "engine/binding.py",
        "        if scheduler.at_bind.get(uid) is attempt:\n"
        "            del scheduler.at_bind[uid]\n        await attempt.end()\n",
        "        pass\n",
    ),
    Mutation(
        "in-flight-forgotten",
        "a device that a pod gets, and that is not written yet, counts as free",
        "state/dynamic_resources/claims.py",
        "        if pending is not None:\n            yield from pending.allocation.results\n",
        "",
    ),
    Mutation(
        "confirmation-unlimited",
        "a pod that is bound and never shown stays assumed",
        "engine/schedule_one.py",
        "        scheduler.state.expect_confirmation(pod, now + _CONFIRMATION_SECONDS)\n",
        "",
    ),
    Mutation(
        "every-address-free",
        "a host port at every address is free where it is taken at one",
        "state/nodes.py",
        "return port.ip == EVERY_ADDRESS or port.ip in taken or EVERY_ADDRESS in taken",
        "return port.ip in taken",
    ),
    Mutation(
        "others-avoid-nothing",
        "the anti-affinity of pods on nodes does not keep away a pod without terms",
        "plugins/inter_pod_affinity.py",
        "if not (affinity.required or affinity.required_anti or avoiding):",
        "if not (affinity.required or affinity.required_anti):",
    ),
    Mutation(
        "anti-affinity-not-tried",
        "a pod is not tried again when those have gone that it must not be with",
        "plugins/inter_pod_affinity.py",
        "    if any(left(pods) for pods, _ in terms.anti):\n        return True\n",
        "",
    ),
    Mutation(
        "spread-not-tried",
        "a pod is not tried again when a counted pod comes into another domain",
        "plugins/pod_topology_spread/plugin.py",
        "_is_counted(before, rule, cluster) != _is_counted(after, rule, cluster)",
        "_is_counted(before, rule, cluster) > _is_counted(after, rule, cluster)",
    ),
    Mutation(
        "ended-pod-tried",
        "a pod that has ended is tried again when kopf shows late that it had no node",
        "engine/pod_enqueuer.py",
        "if scheduler.state.has_ended(pod.uid):",
        "if False:",
    ),
    Mutation(
        "volume-claim-unheard",
        "a volume claim that comes or changes wakes nobody",
        "plugins/volume_binding/plugin.py",
        "may_help = claim.namespace == pod.namespace and claim.name in named",
        "may_help = False and claim.name in named",
    ),
    Mutation(
        "victim-evicted-twice",
        "a pod that is being evicted is evicted and charged again for another preemptor",
        "state/evictions.py",
        "if victim.terminating or self.evicting(victim):",
        "if victim.terminating:",
    ),
    Mutation(
        "nominated-ignored",
        "the second pass of the filters leaves nominated pods out",
        "engine/filtering.py",
        "        if not len(self.cluster.nominations):\n            return ()\n",
        "        return ()\n",
    ),
    Mutation(
        "first-not-unreserved",
        "what the first Reserve plugin holds for a pod that is not bound stays held",
        "engine/assumed.py",
        "for plugin in reversed(pipeline.reserve):",
        "for plugin in reversed(pipeline.reserve[1:]):",
    ),
    Mutation(
        "evictions-not-charged",
        "a budget allows as much as its status says, whatever this replica evicts meanwhile",
        "state/evictions.py",
        "return budget.disruptions_allowed - len(self._records.charges.get(budget.key, ()))",
        "return budget.disruptions_allowed",
    ),
    Mutation(
        "failed-eviction-charged",
        "an eviction that has failed stays charged to its budgets",
        "state/evictions.py",
        "            self._columns.mark_evicting(victim, evicting=False)\n"
        "            self._drop_charges(victim, budgets)\n",
        "            self._columns.mark_evicting(victim, evicting=False)\n",
    ),
    Mutation(
        "moves-not-checked",
        "rebalancing does not look again whether a move is of use yet",
        "engine/rebalancing/running_step.py",
        "return self._why_in_vain(trial, moves)",
        "return None",
    ),
    Mutation(
        "extended-claim-stays",
        "the claim for extended resources of a pod that is not bound stays",
        "plugins/dynamic_resources/claim_writer.py",
        "                            await self._delete(latest)\n                        else:\n",
        "                            pass\n                        else:\n",
    ),
    Mutation(
        "allocated-without-finalizer",
        "devices are allocated to a claim that has no finalizer",
        "plugins/dynamic_resources/claim_writer.py",
        "if claim.allocation is None and FINALIZER not in claim.finalizers:",
        "if False:",
    ),
    Mutation(
        "never-nominated",
        "a pod that preempts others is not nominated",
        "engine/preemption_executor.py",
        "                state.nominate(queued.pod, node)\n",
        "",
    ),
    Mutation(
        "never-moved",
        "rebalancing carries no plan out",
        "engine/rebalancing/profile_rebalancing.py",
        'if section.mode != "Apply" or self.entry.profile.spec.mode != "Active" or not plan.steps:',
        "if plan:",
    ),
    Mutation(
        "groups-not-moved",
        "a group whose nodes suit only some of its members is left where it is",
        "engine/rebalancing/planner.py",
        "        if violating:\n",
        "        if len(violating) == len(members):\n",
    ),
    Mutation(
        "protected-taken",
        "a profile whose budgets are Strict takes protected victims",
        "plugins/default_preemption/plugin.py",
        "if limits.strict and candidate.violations:",
        "if False:",
    ),
    Mutation(
        "windows-ignored",
        "rebalancing moves pods outside of its windows",
        "engine/rebalancing/record.py",
        "return not windows or any(_is_open(window, now) for window in windows)",
        "return True",
    ),
    Mutation(
        "expressions-ignored",
        "a disruption budget whose selector has expressions protects nobody",
        "state/evictions.py",
        "        if budget is not None and budget.selector is not None:\n            part",
        "        if budget is not None and budget.selector is not None and all(\n"
        '            each.operator == "In" for each in budget.selector.requirements\n'
        "        ):\n            part",
    ),
    Mutation(
        "victims-unlimited",
        "maxVictims of a profile is ignored",
        "plugins/default_preemption/plugin.py",
        "if limits.max_victims is not None and len(candidate.pods) > limits.max_victims:",
        "if False:",
    ),
    Mutation(
        "runtime-ignored",
        "minRuntimeSeconds of a profile is ignored",
        "plugins/default_preemption/victims.py",
        "found = np.asarray(columns.started > (now - least if least else inf))",
        "found = np.asarray(columns.started > inf)",
    ),
    Mutation(
        "once-pod-shared",
        "two pods use a claim that is ReadWriteOncePod",
        "plugins/volume_restrictions.py",
        'if "ReadWriteOncePod" in claim.access_modes:',
        "if False:",
    ),
    Mutation(
        "attachments-unlimited",
        "a node gets more volumes than its driver can attach",
        "plugins/node_volume_limits.py",
        "fits &= (new == 0) | (total <= storage.csi_nodes.limits(driver, rows))",
        "fits &= total >= 0",
    ),
    Mutation(
        "shares-unlimited",
        "claims get more of a shared device than it has",
        "plugins/dynamic_resources/capacity.py",
        "in_use.get(name, 0) + consumed[name].nano + allocating.get(name, 0)",
        "consumed[name].nano + allocating.get(name, 0)",
    ),
    Mutation(
        "shares-kept",
        "what a claim has consumed of a shared device stays in use when the claim is freed",
        "state/dynamic_resources/allocated_devices.py",
        "consumed[name] = consumed.get(name, 0) + sign * amount.nano",
        "consumed[name] = consumed.get(name, 0) + max(sign, 0) * amount.nano",
    ),
    Mutation(
        "nominated-port-free",
        "of a nominated pod only the requests count, not its host port",
        "engine/filtering.py",
        "            return tuple(r for row in rows.tolist() for r in "
        "self.rejections_with_nominated(row))\n",
        "            return ()\n",
    ),
    Mutation(
        "gateway-timeout-trusted",
        "a Binding that is answered with 504 is taken for carried out",
        "kube/writes.py",
        "        except (ConflictError, UnansweredError, ServerError):\n"
        "            pod = await self._read(namespace, name, uid)\n",
        "        except (ConflictError, UnansweredError, ServerError) as error:\n"
        "            if error.status == 504:\n"
        "                return\n"
        "            pod = await self._read(namespace, name, uid)\n",
    ),
    Mutation(
        "token-not-renewed",
        "a token that is refused is not renewed",
        "kube/transport.py",
        "if answer.status == 401 and await self._credentials.renew(credentials):",
        "if answer.status == 402 and await self._credentials.renew(credentials):",
    ),
    Mutation(
        "first-update-lost",
        "a pod whose first event is an update does not come into the queue",
        "handlers/objects.py",
        "        elif (pod := parsed_or_none(Kind.POD, raw)) is not None:\n",
        "        elif action is Action.UPDATE and not self._pod_enqueuer.knows(\n"
        "            Uid(identity(Kind.POD, raw))\n"
        "        ):\n"
        "            return\n"
        "        elif (pod := parsed_or_none(Kind.POD, raw)) is not None:\n",
    ),
    Mutation(
        "gone-stays-nominated",
        "a pod that is deleted while it waits for its victims stays nominated",
        "engine/pod_enqueuer.py",
        "            self._scheduler.state.withdraw(uid)\n            self._forget_claims(uid)\n",
        "            self._forget_claims(uid)\n",
    ),
    Mutation(
        "changed-in-an-attempt",
        "what a watch tells is taken over in the middle of an attempt",
        "turn.py",
        "        if self.holder is None:\n            async with self:\n"
        "                await slices.run(call)\n            return\n",
        "        await slices.run(call)\n        return\n",
    ),
)


def mutated(mutation: Mutation) -> str:
    """Return the text of the file with the mistake.

    Raises:
        ValueError: the old text does not stand exactly once in the file.
    """
    text = (_OPERATOR / "mooring" / mutation.file).read_text()
    if text.count(mutation.old) != 1:
        raise ValueError(f"{mutation.name}: {mutation.file} has it {text.count(mutation.old)}x")
    return text.replace(mutation.old, mutation.new)


@contextmanager
def _sources_with(mutation: Mutation) -> Iterator[Path]:
    """Yield a source root with the mistake."""
    text = mutated(mutation)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "operator"
        shutil.copytree(_OPERATOR, root)
        (root / "mooring" / mutation.file).write_text(text)
        yield root


def found_by(mutation: Mutation, first: int, count: int) -> tuple[int, str] | None:
    """Return the first of these seeds that finds the mistake, and what it says; None if none."""
    tests = Path(__file__).parents[1]
    with _sources_with(mutation) as root:
        looked = subprocess.run(
            [sys.executable, "-m", "simulation.mutations", "--look", str(first), str(count)],
            env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{tests}"},
            capture_output=True,
            text=True,
            check=False,
        )
    if looked.returncode:
        raise RuntimeError(looked.stderr)
    seed, _, broken = looked.stdout.strip().partition(" ")
    return (int(seed), broken) if broken else None


def _look(first: int, count: int) -> None:
    """Print the first of these seeds that breaks an invariant, and which."""
    for seed in range(first, first + count):
        try:
            broken = run(draw(seed, [actor() for actor in ACTORS])).broken
        except Exception as error:  # noqa: BLE001 - the mistake may break the simulation itself
            broken = f"the run ends with {error!r}"
        if broken:
            sys.stdout.write(f"{seed} {broken}\n".replace("\n", " "))
            return


def main() -> int:
    """Look for each mistake; return 1 if one is not found."""
    parser = argparse.ArgumentParser(
        prog="python -m simulation.mutations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="*", help="mistakes, by default all")
    parser.add_argument("--count", type=int, default=_MOST_SEEDS, help="seeds at most")
    parser.add_argument("--look", nargs=2, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.look:
        _look(*args.look)
        return 0
    missed = 0
    for mutation in MUTATIONS:
        if args.name and mutation.name not in args.name:
            continue
        found = found_by(mutation, 0, args.count)
        missed += found is None
        said = f"seed {found[0]}: {found[1]}" if found else f"not found by {args.count} seeds"
        sys.stdout.write(f"{mutation.name:<24} {said}\n")
        sys.stdout.flush()
    return missed != 0


if __name__ == "__main__":
    sys.exit(main())
