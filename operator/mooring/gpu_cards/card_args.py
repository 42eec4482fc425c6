"""Arguments of the plugins that assign GPU cards."""

from dataclasses import replace
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from mooring.gpu_cards.model.cards import CardFormat
from mooring.policy.name_syntax import ExtendedResource, QualifiedName
from mooring.policy.reading import PolicyModel

PRESETS: Final = {
    "gpushare": CardFormat(
        memory_resource="aliyun.com/gpu-mem",
        cores_resource="aliyun.com/gpu-core.percentage",
        whole_resource="nvidia.com/gpu",
        count_resource="aliyun.com/gpu-count",
        mib_per_unit=1024,
        annotation_prefix="ALIYUN_COM_GPU_MEM",
    ),
    "hami": CardFormat(
        memory_resource="nvidia.com/gpumem",
        memory_percent_resource="nvidia.com/gpumem-percentage",
        cores_resource="nvidia.com/gpucores",
        whole_resource="nvidia.com/gpu",
        per_container=True,
    ),
    "kai": CardFormat(whole_resource="nvidia.com/gpu", by_annotation=True),
}
"""The names of resources and annotations for GPU cards in three projects."""

Strategy = Literal["Binpack", "Spread"]


def _annotation_prefix(prefix: str) -> str:
    if not prefix.replace("_", "a").isalnum() or not prefix.isascii() or len(prefix) > 50:
        raise ValueError(f'"{prefix}" must be letters, digits and "_", at most 50')
    return prefix


class CardArgs(PolicyModel):
    """Names of resources and annotations for GPU cards; the preset sets fields that are None."""

    preset: Literal["gpushare", "hami", "kai"] = "gpushare"
    """The project that defines the default names."""
    memory_resource: ExtendedResource | None = None
    """The resource for GPU memory. A pod requests memory of a card; a node publishes the sum of
    its cards' memory."""
    memory_percent_resource: ExtendedResource | None = None
    """The resource by which a pod requests a card's memory in percent."""
    cores_resource: ExtendedResource | None = None
    """The resource by which a pod requests a card's compute in percent."""
    whole_resource: ExtendedResource | None = None
    """The resource by which a pod requests a number of whole cards."""
    count_resource: ExtendedResource | None = None
    """The resource by which a node publishes the number of its cards."""
    mib_per_unit: int | None = Field(None, ge=1, le=2**20)
    """The number of MiB in one unit of memoryResource."""
    annotation_prefix: Annotated[str, AfterValidator(_annotation_prefix)] | None = None
    """The prefix of gpushare's annotations, such as ALIYUN_COM_GPU_MEM."""
    cards_annotation: QualifiedName | None = None
    """The annotation that names the cards of a pod."""
    topology_annotation: QualifiedName | None = None
    """The annotation of a node that describes its cards and their links."""
    unhealthy_annotation: QualifiedName | None = None
    """The annotation of a node with the cards that must not be used."""

    def card_format(self) -> CardFormat:
        """Return the names of the preset, with the given fields replaced."""
        given = self.model_dump(include=set(CardArgs.model_fields) - {"preset"}, exclude_none=True)
        return replace(PRESETS[self.preset], **given)


class GPUShareArgs(CardArgs):
    """Arguments of GPUShare: the fields of CardArgs, and the nodes and cards to prefer."""

    nodes: Strategy = "Binpack"
    """Prefer nodes with the fullest cards (Binpack) or with the emptiest cards (Spread)."""
    cards: Literal["Binpack", "Spread", "FirstFit", "LeastFragmentation"] = "Binpack"
    """The card for a share: the fullest, the emptiest, the first, or the card where the share
    leaves the most free GPU usable for typical requests."""
