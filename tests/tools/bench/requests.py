"""Reads counts from metrics: the API server's requests, and a scheduler's attempts."""

import re
import ssl
from collections import Counter
from urllib.request import Request

from controlplane import Access
from controlplane.access import ADMIN
from controlplane.tls import tls_opener

WRITING = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE"})
OF_SCHEDULING = frozenset({"pods", "events", "resourceclaims"})
"""The resources that a scheduler writes for a pod."""

LINE = re.compile(r"^apiserver_request_total\{(?P<labels>.*)\} (?P<count>\S+)$", re.MULTILINE)
ATTEMPT = re.compile(r"^scheduler_schedule_attempts_total\{.*\} (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')


def requests_so_far(access: Access) -> Counter[str]:
    """Return the counts of requests since the server began, by `VERB resource[/sub] code`."""
    return parse(access.kubectl("get", "--raw", "/metrics"))


def attempts_so_far(access: Access, url: str) -> int:
    """Return the attempts of the scheduler that serves metrics below this URL on loopback.

    The certificate is not verified: the scheduler made it for itself.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    token = {"Authorization": f"Bearer {access.tokens[ADMIN]}"}
    with tls_opener(context).open(Request(f"{url}/metrics", headers=token)) as answer:  # noqa: S310 - https
        return attempts(answer.read().decode())


def attempts(metrics: str) -> int:
    """Return the number of attempts about single pods, from the text of a scheduler's metrics."""
    return sum(round(float(count)) for count in ATTEMPT.findall(metrics))


def parse(metrics: str) -> Counter[str]:
    """Return what `requests_so_far` does, from the text of the server's metrics."""
    counts = Counter[str]()
    for found in LINE.finditer(metrics):
        labels = dict(LABEL.findall(found["labels"]))
        resource = "/".join(filter(None, (labels["resource"], labels["subresource"])))
        counts[f"{labels['verb']} {resource} {labels['code']}"] += round(float(found["count"]))
    return counts


def writes(requests: Counter[str]) -> Counter[str]:
    """Return the number of writes to pods, claims and events, by `VERB resource[/subresource]`."""
    counts = Counter[str]()
    for key, count in requests.items():
        verb, resource, _ = key.split(" ")
        if verb in WRITING and resource.split("/")[0] in OF_SCHEDULING:
            counts[f"{verb} {resource}"] += count
    return counts
