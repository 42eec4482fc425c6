"""The rules of a profile: expressions in CEL, checked and planned for columns."""
