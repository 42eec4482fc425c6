"""Decides about pod groups in the trial of a plan."""

from collections.abc import Mapping, Sequence

from mooring.engine.groups.decision import GroupDecision
from mooring.engine.rebalancing.planning import Planning
from mooring.framework.evaluations import StillEvaluating
from mooring.framework.plugin_failures import PluginFailed
from mooring.model.pod import Pod, Uid
from mooring.state.pod_groups import PodGroupState

__all__ = ["decided_group", "group_decision"]


def group_decision(
    planning: Planning, group: PodGroupState, members: Sequence[Pod]
) -> GroupDecision:
    """Return the decision about the group; its rows mean nothing after a pause."""
    try:
        return planning.what_if.decide_group(group, members, planning.pipeline, planning.budget)
    except (PluginFailed, StillEvaluating) as error:
        return GroupDecision({}, message=str(error))


def decided_group(
    planning: Planning, group: PodGroupState, members: Sequence[Pod]
) -> Mapping[Uid, str]:
    """Return the node of each member that gets one."""
    decision = group_decision(planning, group, members)
    names = planning.cluster.node_names
    return {uid: names[row] for uid, row in decision.rows.items()}
