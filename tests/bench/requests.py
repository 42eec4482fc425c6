"""How many requests the API server has answered, from its own metrics."""

import re
from collections import Counter

from controlplane import Access

__all__ = ["requests_so_far", "writes"]

WRITING = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE"})
OF_SCHEDULING = frozenset({"pods", "events", "resourceclaims"})
"""The resources that a scheduler writes for a pod."""

LINE = re.compile(r"^apiserver_request_total\{(?P<labels>.*)\} (?P<count>\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')


def requests_so_far(access: Access) -> Counter[str]:
    """Count the requests since the server began, by `VERB resource[/subresource] code`."""
    return parse(access.kubectl("get", "--raw", "/metrics"))


def parse(metrics: str) -> Counter[str]:
    """Count the same, from the text of the server's metrics."""
    counts = Counter[str]()
    for found in LINE.finditer(metrics):
        labels = dict(LABEL.findall(found["labels"]))
        resource = "/".join(filter(None, (labels["resource"], labels["subresource"])))
        counts[f"{labels['verb']} {resource} {labels['code']}"] += round(float(found["count"]))
    return counts


def writes(requests: Counter[str]) -> Counter[str]:
    """Return, of these, the writes to pods, claims and events, by `VERB resource[/subresource]`."""
    counts = Counter[str]()
    for key, count in requests.items():
        verb, resource, _ = key.split(" ")
        if verb in WRITING and resource.split("/")[0] in OF_SCHEDULING:
            counts[f"{verb} {resource}"] += count
    return counts
