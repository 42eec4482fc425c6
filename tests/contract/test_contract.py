"""Every shipped plugin keeps the rules that a third party's must keep."""

from typing import Any

import pytest
from hypothesis import given, settings

from mooring.plugins import SHIPPED
from mooring.testing.contract import PluginContract, Scenario
from strategies import scenarios

RULES = [name for name in vars(PluginContract) if name.startswith("test_")]


@pytest.mark.parametrize("plugin", SHIPPED, ids=lambda plugin: plugin.name)
@settings(max_examples=12, deadline=None)
@given(scenario=scenarios())
def test_a_shipped_plugin_keeps_every_rule(plugin: type[Any], scenario: Scenario) -> None:
    contract = PluginContract()
    contract.plugin, contract.scenarios = plugin, [scenario]  # type: ignore[misc] # class variables
    for rule in RULES:
        getattr(contract, rule)()
