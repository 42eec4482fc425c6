"""The scores of a decision are those of its plugins, each run plainly on the feasible nodes.

A decision computes columns of all nodes, keeps some of them, and gathers the feasible rows at the
end, or it computes few rows alone; no total may show which.
"""

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deciding import Deciding
from mooring.framework.scores import normalize_score
from mooring.framework.verdicts import SKIP
from mooring.model.pod import Pod, parse_pod
from mooring.scheduling.cycle import decide
from mooring.scheduling.outcome import ScheduleResult
from strategies import clusters_of_nodes, pods, surroundings

Raw = dict[str, Any]
Scores = dict[str, tuple[dict[str, int], int]]

PODS: Final = st.lists(pods(st.just("web"), st.none()), min_size=1, max_size=4)


def plainly(deciding: Deciding, pod: Pod, rows: list[int]) -> Scores:
    """Return the scores by plugin, and their sum, of the nodes at these rows by name."""
    nodes = deciding.cluster.nodes.take(np.array(rows, np.int64))
    states = {
        plugin.name: plugin.pre_score(pod, nodes, deciding.cluster)
        for plugin in deciding.pipeline.pre_score
    }
    found: dict[str, list[int]] = {}
    for scorer in deciding.pipeline.scores:
        state = states.get(scorer.name)
        if state is not SKIP:
            raw = scorer.plugin.score(pod, nodes, state)
            scores = scorer.weight * normalize_score(raw, scorer.plugin.normalize)
            found[scorer.name] = scores.tolist()
    by_node = [{name: column[i] for name, column in found.items()} for i in range(len(rows))]
    return {nodes.name(i): (scores, sum(scores.values())) for i, scores in enumerate(by_node)}


@pytest.mark.parametrize("many", [1, 8192])
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    raw_nodes=clusters_of_nodes(at_least=3),
    templates=PODS,
    order=st.lists(st.integers(0, 3), min_size=4, max_size=12),
)
def test_totals_are_the_sum_of_what_each_plugin_says_of_the_feasible_nodes(
    monkeypatch: pytest.MonkeyPatch,
    many: int,
    raw_nodes: tuple[Raw, ...],
    templates: list[Raw],
    order: list[int],
) -> None:
    monkeypatch.setattr("mooring.scheduling.result_cache._MANY", many)
    deciding = Deciding(*surroundings(), *raw_nodes)
    for number, chosen in enumerate(order):
        raw = templates[chosen % len(templates)]
        pod = parse_pod({**raw, "metadata": {**raw["metadata"], "name": f"p{number}"}})
        outcome = decide(pod, deciding.pipeline, deciding.shared, seed=number)
        if not isinstance(outcome, ScheduleResult):
            continue
        if outcome.scores is not None:
            scored = outcome.scores(None)
            rows = sorted(deciding.state.nodes.row_of[name] for name in scored)
            told = {name: (dict(score.plugins), score.total) for name, score in scored.items()}
            assert told == plainly(deciding, pod, rows)
            assert scored[outcome.node].total == max(score.total for score in scored.values())
        deciding.state.assume(pod, outcome.row)
