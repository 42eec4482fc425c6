"""`python -m conformance.gangs`: finds random gangs that only kube-scheduler places."""

import argparse
import sys
from collections.abc import Sequence

from conformance.gangs.comparing import Verdict, both_schedulers, verdicts
from conformance.gangs.urgent import Evicted, evictions
from controlplane import ApiError, ControlPlaneError
from controlplane.progress import Progress

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if Mooring places every gang of kube-scheduler, 1 if not, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.gangs",
        description="Gives random gangs to kube-scheduler, with its gates on, and to Mooring on "
        "the same API server. Wherever kube-scheduler places a gang, Mooring must.",
    )
    parser.add_argument("--cases", type=int, default=200, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--urgent",
        action="store_true",
        help="instead, an urgent pod beside groups of lower priority: whom do both evict for it?",
    )
    parser.add_argument("--seed", type=int, default=7, metavar="N", help="default: %(default)s")
    chosen = parser.parse_args(arguments)
    if chosen.cases < 1:
        parser.error("--cases must be 1 or more")
    try:
        compare = _compare_evictions if chosen.urgent else _compare
        return compare(chosen.cases, chosen.seed)
    except (ControlPlaneError, ApiError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def _compare(cases: int, seed: int) -> int:
    progress, found = Progress(), list[Verdict]()
    progress.begin(f"{cases} gangs")
    with both_schedulers() as access:
        for verdict in verdicts(access, seed, range(cases)):
            found.append(verdict)
            progress.tick()
    progress.end("done")
    sys.stdout.write(summary(found))
    return int(any(v.wrong or (v.kube_scheduler and not v.mooring) for v in found))


def _compare_evictions(cases: int, seed: int) -> int:
    progress, found = Progress(), list[Evicted]()
    progress.begin(f"{cases} urgent pods")
    with both_schedulers() as access:
        for evicted in evictions(access, seed, range(cases)):
            found.append(evicted)
            progress.tick()
    progress.end("done")
    sys.stdout.write(summary_of_evictions(found))
    return int(any(e.kube_scheduler != e.mooring for e in found))


def summary_of_evictions(found: Sequence[Evicted]) -> str:
    """Return the counts, and a line for each urgent pod with different victims."""
    alike = [e for e in found if e.kube_scheduler == e.mooring]
    preempting = sum(bool(e.kube_scheduler) for e in found)
    counts = (
        f"{len(found)} urgent pods, {preempting} of which kube-scheduler evicts others for: "
        f"the same are evicted for {len(alike)}"
    )
    lines = [
        counts,
        *(
            f"pod {e.number}: kube-scheduler evicts {', '.join(e.kube_scheduler) or 'nobody'}, "
            f"Mooring {', '.join(e.mooring) or 'nobody'}"
            for e in found
            if e.kube_scheduler != e.mooring
        ),
    ]
    return "\n".join(lines) + "\n"


def summary(found: Sequence[Verdict]) -> str:
    """Return the counts, and a line for each gang that Mooring missed or placed wrongly."""
    theirs = {v.number for v in found if v.kube_scheduler}
    ours = {v.number for v in found if v.mooring}
    lines = [
        f"{len(found)} gangs: kube-scheduler placed {len(theirs)}, Mooring {len(ours)}",
        f"only Mooring placed {len(ours - theirs)}, only kube-scheduler {len(theirs - ours)}",
        *(f"gang {number}: only kube-scheduler placed it" for number in sorted(theirs - ours)),
        *(f"gang {v.number}: {v.wrong}" for v in found if v.wrong),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
