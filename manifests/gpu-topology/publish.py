"""Publishes a node's GPUs and their links as the annotation that GPUTopology reads.

Runs in a container that has nvidia-smi, with NODE_NAME set and a service account that may patch
nodes. Needs nothing but Python's standard library.
"""

import json
import os
import re
import ssl
import subprocess
import time
import urllib.request

ANNOTATION = "scheduling.mooring.dev/gpu-topology"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
SECONDS = 300


def links(text):
    """The matrix of links between the GPUs in a text of `nvidia-smi topo -m`."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    head = next(line.split() for line in lines if "GPU0" in line.split())
    names = [name for name in head if re.fullmatch(r"GPU[0-9]+", name)]
    columns = [head.index(name) for name in names]
    rows = {words[0]: words[1:] for line in lines if (words := line.split())[:1] and len(words) > 1}
    return [[rows[name][column] for column in columns] for name in names]


def cards(text):
    """Product and memory in MiB of each GPU from nvidia-smi's CSV of index, name and memory."""
    found = {}
    for line in text.splitlines():
        if line.strip():
            index, product, memory = (part.strip() for part in line.split(","))
            found[int(index)] = {"product": product.replace(" ", "-"), "memory": int(memory)}
    return [found[index] for index in sorted(found)]


def described():
    """The annotation's value for the GPUs of this machine."""
    query = ["--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits"]
    return json.dumps(
        {
            "cards": cards(_output(["nvidia-smi", *query])),
            "links": links(_output(["nvidia-smi", "topo", "-m"])),
        }
    )


def publish(value):
    """The node carries the annotation."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    with open(f"{ACCOUNT}/token") as token:
        authorization = f"Bearer {token.read()}"
    request = urllib.request.Request(
        f"https://{host}:{port}/api/v1/nodes/{os.environ['NODE_NAME']}",
        method="PATCH",
        data=json.dumps({"metadata": {"annotations": {ANNOTATION: value}}}).encode(),
        headers={
            "Authorization": authorization,
            "Content-Type": "application/merge-patch+json",
        },
    )
    trusted = ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt")
    urllib.request.urlopen(request, context=trusted).close()


def _output(command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    while True:
        publish(described())
        time.sleep(SECONDS)
