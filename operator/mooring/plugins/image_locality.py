"""Prefers nodes that already have the pod's images (imagelocality/)."""

from collections.abc import Hashable
from typing import ClassVar, Final

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.plugin import Normalize
from mooring.framework.registry import NoArgs
from mooring.model.pod import Pod
from mooring.state.columns import IntArray
from mooring.state.view import NodeView

_MIB: Final = 1024 * 1024
_LEAST: Final = 23 * _MIB
_MOST_PER_IMAGE: Final = 1000 * _MIB


class ImageLocality:
    """Scores nodes by the size of the pod's images that are on the node; rare images count less."""

    name: ClassVar[str] = "ImageLocality"
    depends_on_node_only: ClassVar[bool] = True
    depends_on_node_object_only: ClassVar[bool] = True
    normalize: ClassVar[Normalize] = Normalize.NONE

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._rules = handle.kubernetes
        self._cluster = handle.cluster

    def score_key(self, pod: Pod) -> Hashable:
        """Return the pod's images that nodes have, and its numbers of containers and image volumes.

        Return None if no node has any of the images.
        """
        spec, has_image = pod.spec, self._cluster.nodes.has_image
        images = tuple([image for image in spec.images if has_image(image)])
        volume_images = tuple([image for image in spec.volume_images if has_image(image)])
        if not images and not volume_images:
            return None
        return images, volume_images, spec.container_count, len(spec.volume_images)

    def score(self, pod: Pod, nodes: NodeView, _: None) -> IntArray:
        """Return int64[nodes]: 0 for at most 23 MiB of images, 100 for 1000 MiB per container."""
        spec, rules = pod.spec, self._rules
        images = spec.images + (spec.volume_images if rules.image_volumes_scored else ())
        counted = spec.container_count
        if rules.image_volumes_counted:
            counted += len(spec.volume_images)
        present, known = np.zeros(len(nodes), np.int64), False
        for image in images:
            size, holders, total = nodes.image_spread(image)
            if holders:
                known = True
                # Otherwise all pods would go to the one node that has the image.
                present += nodes.with_image(image) * int(size * (holders / total))
        if not known:
            return present
        most = _MOST_PER_IMAGE * counted
        present = np.minimum(np.maximum(present, _LEAST), most)
        return 100 * (present - _LEAST) // (most - _LEAST)
