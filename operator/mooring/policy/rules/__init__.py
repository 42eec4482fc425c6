"""Parses and checks the CEL expressions of rules, and plans how to evaluate them."""
